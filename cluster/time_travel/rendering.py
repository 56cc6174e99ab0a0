"""A service's state as text: its own `__repr__` if its class has one, else its attributes by name."""

from __future__ import annotations

from ...service_api import ClusteredService
from ...service_api.service_texts import texts_of
from ..service.service_cluster import ServiceCluster

TEXT_LIMIT = 2000
"""Characters of a state that are shown."""


def describe_fields(service: ClusteredService) -> dict[str, str] | None:
    """Show the declared state of a typed service by field; None for another service, or one with its own `__repr__`."""
    return None if _has_repr(service) else texts_of(service).state()


def describe_state(service: ClusteredService) -> str:
    """Show the state of a service in one line, at most `TEXT_LIMIT` characters of it.

    A class that says itself what matters, with `__repr__`, is asked. Of another typed service it is its declared state
    by field, of any other `name=value` for each attribute but the view of the cluster that it was given.
    """
    fields = describe_fields(service)
    if fields is not None:
        text = " ".join(f"{name}={value}" for name, value in fields.items()) or "no declared state"
    elif _has_repr(service):
        text = repr(service)
    else:
        attributes = {name: value for name, value in vars(service).items() if not isinstance(value, ServiceCluster)}
        text = " ".join(f"{name}={value!r}" for name, value in attributes.items()) or "no attributes"
    text = " ".join(text.split())
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]}... ({len(text)} characters)"


def _has_repr(service: ClusteredService) -> bool:
    return type(service).__repr__ is not object.__repr__
