"""The client `nemo-microservices`, unmodified, on all routes that the adapter uses.

Reads the server's URL and a request body of our adapter from CUSTOMIZER, and prints what it read as JSON.
"""

import json
import os

from nemo_microservices import AuthenticationError, ConflictError, NeMoMicroservices, NotFoundError
from nemo_microservices.types.customization.dpo_parameters_param import DpoParametersParam
from nemo_microservices.types.customization.hyperparameters_param import HyperparametersParam
from nemo_microservices.types.customization.job_create_params import JobCreateParams

SETTINGS = json.loads(os.environ["CUSTOMIZER"])


def unknown(body: dict, params: type) -> list[str]:
    """Keys of a body that the client's type does not have."""
    return sorted(set(body) - set(params.__annotations__))


def refused(call, error: type[Exception]) -> bool:
    """True if the call raises that error."""
    try:
        call()
    except error:
        return True
    return False


client = NeMoMicroservices(base_url=SETTINGS["url"], default_headers={"Authorization": "Bearer right"}, max_retries=0)
stranger = NeMoMicroservices(base_url=SETTINGS["url"], max_retries=0)
namespace = client.namespaces.create(id="team", description="ours")
dataset = client.datasets.create(name="pairs", namespace="team", files_url="hf://datasets/team/pairs")
ours = SETTINGS["job"]
job = client.customization.jobs.create(**ours)
status = client.customization.jobs.status(job.id)
deploy = client.deployment.configs.create(
    name="c", namespace="team", model=job.output_model, nim_deployment={"image_name": "i", "image_tag": "t", "gpu": 1}
)
client.deployment.model_deployments.create(name="d", namespace="team", config=f"{deploy.namespace}/{deploy.name}")
print(
    json.dumps(
        {
            "namespace": namespace.id,
            "dataset": dataset.files_url,
            "output_model": job.output_model,
            "same": client.customization.jobs.retrieve(job.id).id == job.id,
            "listed": [each.name for each in client.customization.jobs.list()],
            "status": [status.status, status.percentage_done],
            "deployments": [
                [each.name, each.status_details.status] for each in client.deployment.model_deployments.list()
            ],
            "canceled": client.customization.jobs.cancel(job.id).id,
            "conflict": refused(lambda: client.namespaces.create(id="team"), ConflictError),
            "missing": refused(lambda: client.customization.jobs.retrieve("nothing"), NotFoundError),
            "stranger": refused(stranger.customization.jobs.list, AuthenticationError),
            "unknown": [
                unknown(ours, JobCreateParams),
                unknown(ours["hyperparameters"], HyperparametersParam),
                unknown(ours["hyperparameters"]["dpo"], DpoParametersParam),
            ],
        }
    )
)
