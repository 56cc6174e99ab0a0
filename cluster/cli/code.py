"""`trimaran code`: the digest of the services' code, as `accept_code` names it, before a member starts with it."""

from __future__ import annotations

from typing import Any

from ...archive.tool.output import OutputFormat, OutputOption, print_object
from ...service_api.errors import ConfigurationError
from ..service.service_code import digest_of_code, format_code, short_code
from ..settings.service_loading import load_service_classes
from .shared.setting_flags import load_given_from_flags, with_service_flags


@with_service_flags
def code(output: OutputOption = OutputFormat.TABLE, **settings: Any) -> None:  # Any: values of flags
    """Print the digest of the services' code, and the flag that lets a member with this code replay older entries.

    The services are those of `trimaran node` with the same flags, variables and file. Run it on the host where the code
    is installed: nothing is started or changed.
    """
    values, _ = load_given_from_flags(settings)
    if "service" not in values:
        raise ConfigurationError("service is missing: give --service module:Class or TRIMARAN_SERVICE")
    services = values["service"].split(",")
    digest = digest_of_code(*load_service_classes(services, values["service_dir"]))
    accepted = short_code(digest)
    row = {"services": services, "code": format_code(digest), "accept_code": accepted}
    print_object(row, output, lambda: f"code {format_code(digest)} of {', '.join(services)}: --accept-code {accepted}")
