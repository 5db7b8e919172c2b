"""Find every cell in a slide from the few that somebody marked."""

__version__ = "0.1.0"
