"""Register every built-in component; plug-ins have such a module too."""

# ruff: noqa: F401 - imported for what they register
import nat.experimental.test_time_compute.selection
import nat.plugins.command
import nat.plugins.customizer.register
import nat.plugins.datasets
import nat.plugins.evaluators.llm_judge
import nat.plugins.evaluators.relative_judge
import nat.plugins.evaluators.scores
import nat.plugins.frameworks.register
import nat.plugins.llms.nim
import nat.plugins.llms.register
import nat.plugins.local.adapter
import nat.plugins.local.command
import nat.plugins.local.llm
import nat.plugins.offline.builder
import nat.plugins.openpipe.register
import nat.plugins.python
import nat.plugins.service
import nat.plugins.team
import nat.plugins.telemetry
import nat.plugins.tinker.register
import nat.plugins.trackers
