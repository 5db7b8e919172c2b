"""The loop with a person: where to mark next, and reviewed regions."""

from sparseshot.active.review import ReviewNote, add_review, is_proposed, is_rejected, review_region
from sparseshot.active.suggestions import Suggestion, suggest_regions, write_suggestions

__all__ = [
    "ReviewNote",
    "Suggestion",
    "add_review",
    "is_proposed",
    "is_rejected",
    "review_region",
    "suggest_regions",
    "write_suggestions",
]
