"""Where the course keeps what is a user's own: models that were trained or fetched, and what is solved."""

from pathlib import Path

import platformdirs


def user_folder(kind: str) -> Path | None:
    """Return the system's folder for a user's "cache" or "data", there or not; None if the user has none."""
    ask = {"cache": platformdirs.user_cache_dir, "data": platformdirs.user_data_dir}[kind]
    try:
        found = Path(ask("positional-encodings-course"))
    except Exception:  # a user without a home, for whom each system has an error of its own
        return None
    return found if found.is_absolute() else None
