"""The parts of the asynchronous client: methods named once and typed by those of `Client`."""

from __future__ import annotations

from typing import Any

from hillclimb.client.asynchronous.methods import AsyncIteration, AsyncMethod
from hillclimb.client.resources.campaigns import Campaigns
from hillclimb.client.resources.datasets import Datasets
from hillclimb.client.resources.documentation import Documentation
from hillclimb.client.resources.experiments import Experiments
from hillclimb.client.resources.imports import Imports
from hillclimb.client.resources.issues import Issues
from hillclimb.client.resources.projects.acceptance import Acceptances
from hillclimb.client.resources.projects.access import ProjectAccess
from hillclimb.client.resources.projects.agent_keys import AgentKeys
from hillclimb.client.resources.projects.project_defaults import Defaults
from hillclimb.client.resources.projects.secrets import Secrets
from hillclimb.client.resources.projects.slack import SlackLinks
from hillclimb.client.resources.projects.webhooks import Webhooks


class AsyncPart:
    """Some methods of a client."""

    def __init__(self, synchronous: Any) -> None:
        self.synchronous = synchronous


class AsyncDatasets(AsyncPart):
    """Datasets in asynchronous form."""

    annotate = AsyncMethod(Datasets.annotate)
    create = AsyncMethod(Datasets.create)
    diff = AsyncMethod(Datasets.diff)
    exclude = AsyncMethod(Datasets.exclude)
    exclusions = AsyncMethod(Datasets.exclusions)
    file = AsyncIteration(Datasets.file)
    get = AsyncMethod(Datasets.get)
    include = AsyncMethod(Datasets.include)
    lint = AsyncMethod(Datasets.lint)
    list = AsyncMethod(Datasets.list)
    task = AsyncMethod(Datasets.task)
    tasks = AsyncMethod(Datasets.tasks)
    version = AsyncMethod(Datasets.version)
    versions = AsyncMethod(Datasets.versions)


class AsyncCampaigns(AsyncPart):
    """Campaigns in asynchronous form."""

    cancel = AsyncMethod(Campaigns.cancel)
    create = AsyncMethod(Campaigns.create)
    get = AsyncMethod(Campaigns.get)
    list = AsyncMethod(Campaigns.list)
    retry = AsyncMethod(Campaigns.retry)
    table = AsyncMethod(Campaigns.table)


class AsyncIssues(AsyncPart):
    """Issues in asynchronous form."""

    change = AsyncMethod(Issues.change)
    close = AsyncMethod(Issues.close)
    create = AsyncMethod(Issues.create)
    get = AsyncMethod(Issues.get)
    ledger = AsyncMethod(Issues.ledger)
    list = AsyncMethod(Issues.list)


class AsyncImports(AsyncPart):
    """Imports in asynchronous form."""

    capsule = AsyncMethod(Imports.capsule)
    skyrl = AsyncMethod(Imports.skyrl)
    wandb = AsyncMethod(Imports.wandb)


class AsyncExperiments(AsyncPart):
    """Experiments in asynchronous form."""

    add = AsyncMethod(Experiments.add)
    changelog = AsyncMethod(Experiments.changelog)
    create = AsyncMethod(Experiments.create)
    edit = AsyncMethod(Experiments.edit)
    figures = AsyncMethod(Experiments.figures)
    get = AsyncMethod(Experiments.get)
    list = AsyncMethod(Experiments.list)
    remove = AsyncMethod(Experiments.remove)
    report = AsyncMethod(Experiments.report)
    results = AsyncMethod(Experiments.results)
    sweep = AsyncMethod(Experiments.sweep)


class AsyncAgentKeys(AsyncPart):
    """AgentKeys in asynchronous form."""

    change = AsyncMethod(AgentKeys.change)
    create = AsyncMethod(AgentKeys.create)
    list = AsyncMethod(AgentKeys.list)
    own = AsyncMethod(AgentKeys.own)
    revoke = AsyncMethod(AgentKeys.revoke)


class AsyncAcceptances(AsyncPart):
    """Evidence of the installation in asynchronous form."""

    forget = AsyncMethod(Acceptances.forget)
    list = AsyncMethod(Acceptances.list)
    record = AsyncMethod(Acceptances.record)
    run_service_checks = AsyncMethod(Acceptances.run_service_checks)


class AsyncDocumentation(AsyncPart):
    """Documentation in asynchronous form."""

    index = AsyncMethod(Documentation.index)
    page = AsyncMethod(Documentation.page)


class AsyncProjectAccess(AsyncPart):
    """Access to the project in asynchronous form."""

    audit = AsyncMethod(ProjectAccess.audit)
    create_key = AsyncMethod(ProjectAccess.create_key)
    create_project = AsyncMethod(ProjectAccess.create_project)
    delete_project = AsyncMethod(ProjectAccess.delete_project)
    keys = AsyncMethod(ProjectAccess.keys)
    members = AsyncMethod(ProjectAccess.members)
    projects = AsyncMethod(ProjectAccess.projects)
    quotas = AsyncMethod(ProjectAccess.quotas)
    remove_member = AsyncMethod(ProjectAccess.remove_member)
    revoke_key = AsyncMethod(ProjectAccess.revoke_key)
    rotate_key = AsyncMethod(ProjectAccess.rotate_key)
    set_member = AsyncMethod(ProjectAccess.set_member)
    set_quotas = AsyncMethod(ProjectAccess.set_quotas)
    whoami = AsyncMethod(ProjectAccess.whoami)


class AsyncDefaults(AsyncPart):
    """Defaults of the project in asynchronous form."""

    get = AsyncMethod(Defaults.get)
    replace = AsyncMethod(Defaults.replace)


class AsyncSecrets(AsyncPart):
    """Secrets in asynchronous form."""

    delete = AsyncMethod(Secrets.delete)
    list = AsyncMethod(Secrets.list)
    reencrypt = AsyncMethod(Secrets.reencrypt)
    set = AsyncMethod(Secrets.set)


class AsyncSlackLinks(AsyncPart):
    """Links to people in Slack, and messages, in asynchronous form."""

    create_code = AsyncMethod(SlackLinks.create_code)
    list = AsyncMethod(SlackLinks.list)
    messages = AsyncMethod(SlackLinks.messages)
    unlink = AsyncMethod(SlackLinks.unlink)


class AsyncWebhooks(AsyncPart):
    """Webhooks in asynchronous form."""

    change = AsyncMethod(Webhooks.change)
    create = AsyncMethod(Webhooks.create)
    delete = AsyncMethod(Webhooks.delete)
    deliveries = AsyncMethod(Webhooks.deliveries)
    get = AsyncMethod(Webhooks.get)
    list = AsyncMethod(Webhooks.list)
    rotate = AsyncMethod(Webhooks.rotate)
    test = AsyncMethod(Webhooks.test)
