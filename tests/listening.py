"""The command line as a program that Ctrl-C stops, even if the tests run in the background of a shell.

A shell starts background jobs with SIGINT ignored.
"""

LISTENING = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from sparseshot.cli import main
sys.exit(main(sys.argv[1:]))
"""
