"""What the notebooks check: claims of the text, at the place where they are made."""

from helpers.check.claims import ClaimFailed, claim

__all__ = ["ClaimFailed", "claim"]
