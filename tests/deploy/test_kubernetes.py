"""The manifests for Kubernetes: valid by its published schemas, and of one piece with what a member is.

No cluster was there to run them in: docs/deploying.md says so.
"""

from __future__ import annotations

import shlex
from typing import Any, Final

import pytest
import yaml

from tests.deploy.checks import DEPLOY, HANDOVER_S, METRICS_PORT, PORTS, check_command, check_ports, load_settings
from trimaran.service_api.addresses.name_pattern import NamePattern

VERSIONS: Final = ("1.28", "1.37")
"""The oldest that the manifests are for, and the newest whose schemas we have."""


def manifests() -> dict[tuple[str, str], Any]:
    documents = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


ALL: Final = manifests()
STATEFUL_SET: Final = ALL["StatefulSet", "trimaran"]["spec"]
POD: Final = STATEFUL_SET["template"]["spec"]
MEMBER: Final = POD["containers"][0]


def environment(member_id: int) -> dict[str, str]:
    """What the variables of a pod are: by its index, where they come from its labels."""
    return {each["name"]: each.get("value", str(member_id)) for each in MEMBER["env"]}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ALL, ids=lambda name: "-".join(name))
def test_a_manifest_is_valid_by_the_schema_of_its_kind(name: tuple[str, str], version: str) -> None:
    import kubernetes_validate  # here, since it takes two seconds and every worker imports every file of tests

    kubernetes_validate.validate(ALL[name], version, strict=True)


@pytest.mark.parametrize("member_id", [0, 1, 2, 3])
def test_the_settings_of_each_pod_are_those_of_a_member(member_id: int) -> None:
    """Pods beyond the three that form the cluster join it, with the same settings."""
    config = load_settings(environment(member_id))

    check_ports(config)
    assert config.me.ingress == f"trimaran-{member_id}.trimaran:9000"
    assert bool(config.join) == (member_id >= 3)
    assert config.tls is not None
    assert config.tls.key == f"/run/certs/member-{member_id}.key"


def test_members_are_named_as_the_headless_service_names_pods() -> None:
    pattern = NamePattern.parse(environment(0)["TRIMARAN_MEMBERS"])
    service = ALL["Service", STATEFUL_SET["serviceName"]]["spec"]

    assert pattern.endpoint == f"trimaran-{{member_id}}.{STATEFUL_SET['serviceName']}:{PORTS['ingress']}"
    assert pattern.size == STATEFUL_SET["replicas"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"], "a member that is not ready yet has to be found"
    assert STATEFUL_SET["podManagementPolicy"] == "Parallel", "no member is ready before the next one is there"
    assert not POD["enableServiceLinks"], "nothing reads variables for the service trimaran"


def test_ports_are_the_same_in_pods_and_services() -> None:
    declared = {port["name"]: port["containerPort"] for port in MEMBER["ports"]}
    headless = {port["name"]: port["port"] for port in ALL["Service", "trimaran"]["spec"]["ports"]}

    assert declared == headless == {**PORTS, "metrics": METRICS_PORT}
    assert ALL["Service", "trimaran-clients"]["spec"]["ports"][0]["targetPort"] == "ingress"


def test_everything_selects_the_pods() -> None:
    labels = STATEFUL_SET["template"]["metadata"]["labels"]
    selectors = [
        STATEFUL_SET["selector"]["matchLabels"],
        ALL["PodDisruptionBudget", "trimaran"]["spec"]["selector"]["matchLabels"],
        ALL["Service", "trimaran"]["spec"]["selector"],
        ALL["Service", "trimaran-clients"]["spec"]["selector"],
    ]

    assert selectors == [labels] * 4


def test_probes_ask_for_pages_that_a_member_serves() -> None:
    """`/readyz` never restarts a member: it waits for others, which a restart does not bring."""
    probes = {name: MEMBER[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}

    assert {name: probe["path"] for name, probe in probes.items()} == {
        "startup": "/livez",
        "liveness": "/livez",
        "readiness": "/readyz",
    }
    assert {(probe["port"], probe["scheme"]) for probe in probes.values()} == {("metrics", "HTTPS")}  # TLS is set


def test_a_pod_that_is_deleted_hands_over_in_time() -> None:
    shell, flag, script = MEMBER["lifecycle"]["preStop"]["exec"]["command"]
    command = shlex.split(script.replace("$TRIMARAN_MEMBER_ID", "0"))

    assert (shell, flag, command[0]) == ("sh", "-c", "exec")
    check_command(command[1:])
    timeout_s = float(command[command.index("--timeout") + 1])
    assert HANDOVER_S < timeout_s < POD["terminationGracePeriodSeconds"]


def test_a_pod_may_write_where_a_member_writes_and_nowhere_else() -> None:
    mounts = {mount["mountPath"]: mount["name"] for mount in MEMBER["volumeMounts"]}
    volumes = {volume["name"] for volume in (*POD["volumes"],)}
    claimed = {claim["metadata"]["name"] for claim in STATEFUL_SET["volumeClaimTemplates"]}

    assert {*mounts.values()} == volumes | claimed
    assert str(load_settings(environment(0)).directory.parent) in mounts
    assert MEMBER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["securityContext"]["runAsNonRoot"]
    assert POD["volumes"][0]["secret"]["defaultMode"] == 0o440, "root owns it, and the group may read it: no others"
