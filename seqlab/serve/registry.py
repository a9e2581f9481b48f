"""The models that are served, by name; requests contain names, never paths."""

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqlab.bundle import find_bundle, is_bundle
from seqlab.errors import SeqlabError, UsageError, nearest
from seqlab.explain.views import usual_view, views_of
from seqlab.lab import checkpoints, load_checkpoint
from seqlab.model import RUN, Model, load
from seqlab.runs import recipe_of_run
from seqlab.training.checkpoint import MetricsFile

EXAMPLES = 5
DEAD_AFTER = 600.0  # seconds without a new line in its log after which a run counts as ended


class UnknownError(UsageError):
    """There is no model or view of this name."""


class ModelRegistry:
    """Trained models and runs in progress, each under the name of its directory."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders: dict[str, Path] = {}
        self._loaded: dict[str, tuple[float, Model]] = {}
        self._lock = threading.Lock()
        for folder in map(find_bundle, folders):
            name = folder.resolve().name
            number = sum(other.partition("~")[0] == name for other in self.folders)
            self.folders[f"{name}~{number + 1}" if number else name] = folder
        for name, folder in self.folders.items():
            if is_bundle(folder):
                self.model(name)  # reports a damaged model at the start
            elif not (folder / RUN / "recipe.toml").is_file():
                load(folder)  # raises the error that fits

    def model(self, name: str) -> Model:
        """Return a model, loaded if necessary: NAME, or NAME@CHECKPOINT; of a run in progress, the best so far."""
        if (model := self.loaded(name)) is not None:
            return model
        folder, checkpoint, modified = self._resolve(name)
        with self._lock:
            model = load_checkpoint(folder, checkpoint) if checkpoint else load(folder)
            self._loaded[name] = (modified, model)
        return model

    def loaded(self, name: str) -> Model | None:
        """Return the model if it is loaded and its file has not changed since."""
        modified, model = self._loaded.get(name, (0.0, None))
        return model if self._resolve(name)[2] == modified else None

    def _resolve(self, name: str) -> tuple[Path, str, float]:
        """Return the directory, the checkpoint or "", and the time when its file was modified."""
        folder, checkpoint = self._split(name)
        if not checkpoint and not is_bundle(folder):
            checkpoint = "best" if "best" in checkpoints(folder) else "last"
        files = checkpoints(folder) if checkpoint else {}
        if checkpoint and checkpoint not in files:
            plain = name.removesuffix(f"@{checkpoint}")
            names = ", ".join(f"{plain}@{each}" for each in files)
            raise UnknownError(
                f"'{plain}' has no checkpoint '{checkpoint}'",
                hint=f"there are: {names}." if names else "wait for its first validation.",
            )
        file = files[checkpoint] if checkpoint else folder / "manifest.json"
        return folder, checkpoint, file.stat().st_mtime

    def describe(self) -> list[dict[str, Any]]:
        """Return the facts about every model."""
        return [self._facts(name) for name in self.folders]

    def run(self, name: str, after: int) -> dict[str, Any]:
        """Return the log of a training without its first `after` lines, and whether it still runs."""
        folder, _ = self._split(name)
        log = folder / RUN / "metrics.jsonl"
        rows = list(MetricsFile(log).rows())
        running = log.exists() and time.time() - log.stat().st_mtime < DEAD_AFTER
        if running and is_bundle(folder):  # the manifest is written when a training ends
            running = log.stat().st_mtime > (folder / "manifest.json").stat().st_mtime
        return {
            "rows": rows[after:],
            "next": len(rows),
            "running": running,
            "checkpoints": list(checkpoints(folder)),
        }

    def _split(self, name: str) -> tuple[Path, str]:
        """Return the directory and the checkpoint of NAME or NAME@CHECKPOINT; the checkpoint may be ""."""
        if name in self.folders:
            return self.folders[name], ""
        plain, _, checkpoint = name.rpartition("@")
        if plain not in self.folders:
            name = plain or name
            raise UnknownError(
                f"there is no model '{name[:100]}' here", hint=nearest(name[:100], self.folders)
            )
        return self.folders[plain], checkpoint

    def _facts(self, name: str) -> dict[str, Any]:
        folder = self.folders[name]
        has_run = (folder / RUN / "metrics.jsonl").is_file()
        try:
            model = self.model(name)
        except UnknownError:
            recipe = recipe_of_run(folder)
            facts = {"parameters": 0, "usual": "", "views": [], "examples": []}
        else:
            recipe = model.recipe
            facts = {
                "parameters": model.bundle.num_parameters,
                "usual": usual_view(model.bundle),
                "views": views_of(model.bundle, has_run=has_run),
                "examples": _examples(model),
            }
        return {
            "name": name,
            "task": recipe.task,
            "recipe": recipe.name,
            "about": recipe.about,
            **facts,
            "decode": recipe.decode.model_dump(),
            "run": has_run,
        }


def _examples(model: Model) -> list[str]:
    """Return a few held-out inputs, or those stored with an exported model."""
    inputs = []
    if model.stores.is_dir():
        try:
            inputs = model.data().example_inputs(model.bundle, EXAMPLES)
        except (OSError, SeqlabError):
            return []
    return inputs or list(model.metrics.get("examples", []))
