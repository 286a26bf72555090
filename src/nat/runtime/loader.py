"""Discover plug-ins, load a configuration, and open its workflow, for plug-ins and scripts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from enum import IntFlag
from importlib.metadata import EntryPoint
from pathlib import Path

from nat.builder.workflow import Workflow
from nat.builder.workflow_builder import WorkflowBuilder
from nat.config.load import load_config
from nat.registry.discovery import discover_components, installed_entry_points

__all__ = ["PluginTypes", "discover_and_register_plugins", "discover_entrypoints", "load_config", "load_workflow"]


class PluginTypes(IntFlag):
    """Kinds of plug-ins; this project has only components."""

    COMPONENT = 1
    CONFIG_OBJECT = COMPONENT
    ALL = COMPONENT


def discover_entrypoints(plugin_type: PluginTypes = PluginTypes.ALL) -> list[EntryPoint]:
    """The entry points of the installed plug-ins."""
    return installed_entry_points() if plugin_type & PluginTypes.COMPONENT else []


def discover_and_register_plugins(plugin_type: PluginTypes = PluginTypes.ALL) -> None:
    """Import the installed plug-ins; failures are reported when a type is missing."""
    if plugin_type & PluginTypes.COMPONENT:
        discover_components()


@asynccontextmanager
async def load_workflow(config_file: Path | str) -> AsyncIterator[Workflow]:
    """The workflow of a YAML, open until the block ends."""
    async with WorkflowBuilder.from_config(load_config(config_file)) as builder:
        yield await builder.build()
