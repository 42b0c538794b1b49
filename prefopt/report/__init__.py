"""Reports of training runs and diagnoses: one HTML page that opens offline, and the same claims as Markdown."""

from prefopt.report.content import Report
from prefopt.report.folders import Evidence
from prefopt.report.write import build_report, write_report

__all__ = ["Evidence", "Report", "build_report", "write_report"]
