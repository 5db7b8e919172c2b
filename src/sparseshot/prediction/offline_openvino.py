"""OpenVINO and NNCF without telemetry, because a prediction makes no network connections."""

import logging
import sys
from types import ModuleType


def import_openvino() -> ModuleType:
    """Import OpenVINO without telemetry.

    At its import and at each conversion it would write a client ID into the home folder and report to Google
    Analytics. It has no setting against that except a file in the home folder.
    """
    _block_telemetry()
    import openvino  # noqa: PLC0415  an extra

    module: ModuleType = openvino
    return module


def import_nncf() -> ModuleType:
    """Import NNCF without telemetry and without messages on standard output."""
    _block_telemetry()
    usual = logging.getLoggerClass()
    import nncf  # noqa: PLC0415  an extra

    logging.setLoggerClass(usual)  # NNCF replaces it for the whole process
    nncf.set_log_level(logging.ERROR)
    module: ModuleType = nncf
    return module


def _block_telemetry() -> None:
    # Both take the absence of the package as a refusal.
    loaded = sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    if loaded is not None:  # somebody has imported OpenVINO before
        loaded.main.TelemetrySender.send = lambda *_: None
