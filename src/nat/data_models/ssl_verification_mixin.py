"""Whether the certificate of an LLM's server is checked."""

from pydantic import BaseModel, ConfigDict


class SSLVerificationMixin(BaseModel):
    """Whether the certificate of an LLM's server is checked."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    verify_ssl: bool = True
    """Check the server's certificate; `false` only for a server of your own with a self-signed one."""
