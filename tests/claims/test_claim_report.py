"""The report about claims can be written as JSON."""

from mooring.claims.claim_report import (
    ClaimReport,
    ClaimsReport,
    ExcludedDevices,
    RequestReport,
)
from mooring.observe.documents import plain


def test_a_report_is_a_document_without_what_does_not_apply() -> None:
    asked = RequestReport("r", 2, 0, [ExcludedDevices("in use", 3, 1)])
    report = ClaimsReport([ClaimReport("gpu", None, "not created yet", [asked])], 1, 4)
    assert plain(report) == {
        "claims": [
            {
                "name": "gpu",
                "claim": None,
                "state": "not created yet",
                "requests": [
                    {
                        "request": "r",
                        "count": 2,
                        "enoughOn": 0,
                        "excluded": [{"reason": "in use", "devices": 3, "nodes": 1}],
                    }
                ],
            }
        ],
        "nodes": 1,
        "nodesInAll": 4,
    }
    assert plain(ClaimsReport([], 0, 0, "wrong"))["error"] == "wrong"
