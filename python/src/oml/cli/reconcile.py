"""``oml reconcile``: compare the lake with the journal."""

from oml.cli.output import DsnOption, JsonOption, print_json, print_table, progress
from oml.errors import EXIT_FINDINGS

COLUMNS = ("difference", "outbox_seq", "tenant_id", "seq", "event_id", "detail")


def reconcile(dsn: DsnOption = None, json: JsonOption = False) -> int:
    """Name every difference of bronze from the journal. Exit 0 none, 1 some, 2 could not run."""
    from oml import settings
    from oml.lake.schema import BRONZE_EVENTS
    from oml.lake.source import Source
    from oml.lake.writer import LakeWriter
    from oml.reconcile.bronze import BronzeJudge

    configured = settings.load()
    with Source(dsn or configured.dsn) as source:
        judge = BronzeJudge(source, LakeWriter(source, configured).open(BRONZE_EVENTS))
        with progress("comparing", quiet=json) as show:
            findings = [finding.as_dict() for finding in judge.findings(show)]
    if json:
        found = {"ok": not findings, "compared": judge.compared, "accepted_lost": judge.accepted}
        print_json({**found, "findings": findings})
    else:
        if findings:
            print_table(COLUMNS, [[finding[name] for name in COLUMNS] for finding in findings])
        print(f"{judge.compared} events compared, {len(findings)} differences")
        if judge.accepted:
            print(f"{judge.accepted} events of accepted losses")
    return EXIT_FINDINGS if findings else 0
