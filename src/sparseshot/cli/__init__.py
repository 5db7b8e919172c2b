"""The command line, ``sparseshot COMMAND``. Commands import what they need when they run."""

from sparseshot.cli.app import main

__all__ = ["main"]
