"""`spml serve`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spml.cli import ModelOptions, note_unfinished
from spml.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Serve(ModelOptions):
    """Serve a web page and an HTTP endpoint that tag pictures.

    Example: spml serve runs/photos --port 7860
    """

    order: ClassVar[int] = 130

    host: str = "127.0.0.1"
    """Address to listen on. The default serves this machine alone; 0.0.0.0 admits others, without a
    password."""
    port: int = 7860
    """Port to listen on; 0 chooses a free one."""
    max_megabytes: float = 20.0
    """Largest picture file to accept."""
    max_pixels: float = 50e6
    """Largest picture to accept, width times height; at most 178 million."""

    def run(self) -> None:
        """Serve until interrupted."""
        from spml.use.serve.serve import check_gradio

        for name in ("max_megabytes", "max_pixels"):
            if not 0 < getattr(self, name) < 1e12:
                raise UserError(
                    f"--{name.replace('_', '-')} must be above 0, not {getattr(self, name):g}"
                )
        check_gradio()
        from spml.data.images.decode import PIXEL_LIMIT
        from spml.use.serve.serve import serve
        from spml.use.serve.tagger import Limits

        if self.max_pixels > PIXEL_LIMIT:
            raise UserError(
                f"--max-pixels {self.max_pixels:g}: "
                f"pictures above {PIXEL_LIMIT:,} pixels are not read"
            )
        limits = Limits(bytes=int(self.max_megabytes * 1e6), pixels=int(self.max_pixels))
        note_unfinished(self.run_folder)
        serve(self.run_folder, host=self.host, port=self.port, limits=limits)
