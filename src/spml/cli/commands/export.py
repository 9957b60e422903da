"""`spml export`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from spml.cli import ModelOptions
from spml.errors import UserError
from spml.files import refuse_existing


@dataclass(frozen=True, kw_only=True)
class Export(ModelOptions):
    """Write a model as one ONNX or torch.export file, or upload it.

    Example: spml export runs/photos --out photos.onnx, or
    spml export runs/photos --hub OWNER/NAME
    """

    order: ClassVar[int] = 120

    out: Path | None = None
    """File to write. Default: model.onnx or model.pt2."""
    format: Literal["onnx", "torch"] | None = None
    """Format of the file. Default: torch if --out ends in .pt2, else onnx."""
    hub: str | None = None
    """Upload the model to OWNER/NAME instead.
    A new repository is private. ./NAME writes the same files to a folder."""
    overwrite: bool = False
    """Replace the file, or the files in the folder."""

    def run(self) -> None:
        """Write the file and print its largest difference to the model, or upload the model."""
        from rich.console import Console

        if self.hub is not None:
            self._push(self.hub)
            return
        from spml.use.export.export import SUFFIXES, export

        kind = self.format or (
            "torch" if self.out is not None and self.out.suffix.lower() == ".pt2" else "onnx"
        )
        out = self.out or Path(f"model{SUFFIXES[kind]}")
        if out.suffix.lower() != SUFFIXES[kind]:
            wanted = f"--format {kind} needs a name that ends in {SUFFIXES[kind]}"
            either = "give a name that ends in .onnx for ONNX, or in .pt2 for torch.export"
            raise UserError(f"--out {out}: {wanted if self.format else either}")
        if not self.overwrite:
            refuse_existing(out, "give --overwrite or another --out")
        run = self.model()
        with Console(stderr=True).status("exporting"):
            worst = export(run, out, kind)
        near = f"within {worst:.0e} of the model's" if worst else "equal to the model's"
        print(f"{out}, {out.stat().st_size / 1e6:.1f} MB; probabilities {near}")

    def _push(self, target: str) -> None:
        """Upload the model, and print the command that uses it."""
        from spml.use.hub import push

        if self.out is not None or self.format is not None:
            raise UserError("--hub writes the model itself; leave out --out and --format")
        place = push(self.model(), target, overwrite=self.overwrite)
        print(f"written; use it with: spml predict {shlex.quote(place)} INPUT...")
