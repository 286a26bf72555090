"""The configs of one YAML by group and name, and the way from each to the built thing."""

from typing import Any, TypeVar

from nat.builder.opening import Opener
from nat.data_models.common import TypedBaseModel
from nat.data_models.component_ref import ComponentGroup
from nat.data_models.config import Config
from nat.errors import WorkflowError, did_you_mean, one_of
from nat.registry.catalog import Catalog

C = TypeVar("C", bound=TypedBaseModel)


class Components:
    """Knows every config by name; builds one when it is first asked for, through its registered function."""

    def __init__(self, catalog: Catalog, opener: Opener) -> None:
        self.catalog = catalog
        self.opener = opener
        self._configs: dict[ComponentGroup, dict[str, TypedBaseModel]] = {group: {} for group in ComponentGroup}

    def hold(self, config: Config) -> None:
        """Take in all named components of a configuration."""
        sections: dict[ComponentGroup, dict[str, Any]] = {
            ComponentGroup.LLMS: config.llms,
            ComponentGroup.FUNCTIONS: config.functions,
            ComponentGroup.EVALUATORS: config.eval.evaluators,
            ComponentGroup.TTC_STRATEGIES: config.ttc_strategies,
            ComponentGroup.TRAJECTORY_BUILDERS: config.trajectory_builders,
            ComponentGroup.TRAINER_ADAPTERS: config.trainer_adapters,
            ComponentGroup.TRAINERS: config.trainers,
        }
        for group, section in sections.items():
            for name, component in section.items():
                self.add(group, name, component)

    def add(self, group: ComponentGroup, name: str, config: TypedBaseModel) -> None:
        """Take in one component; a name that is taken raises WorkflowError."""
        if name in self._configs[group]:
            raise WorkflowError(f"'{name}' is already under {group}", hint="give one of the two another name")
        self._configs[group][name] = config

    def config(self, group: ComponentGroup, name: str, wanted: type[C]) -> C:
        """The config of a name; unknown raises WorkflowError."""
        config = self._configs[group].get(name)
        if not isinstance(config, wanted):
            known = self._configs[group]
            raise WorkflowError(f"'{name}' not found under {group}.{did_you_mean(name, known)} There: {one_of(known)}.")
        return config

    def names(self, group: ComponentGroup) -> list[str]:
        return list(self._configs[group])

    async def build(self, group: ComponentGroup, path: str, config: TypedBaseModel, builder: Any) -> Any:
        """Enter the registered build function of a config; closed with the stack."""
        component = self.catalog.component_of(group, config)
        return await self.opener.enter(path, config, component.build_fn(config, builder))

    async def instance(self, group: ComponentGroup, name: str, builder: Any) -> Any:
        """The built component of a name, the same on every call."""
        path, config = f"{group}.{name}", self.config(group, name, TypedBaseModel)
        return await self.opener.once(path, lambda: self.build(group, path, config, builder))
