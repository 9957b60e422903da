"""`spml serve`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from spml.cli import DecodeOptions, ModelOptions, log
from spml.errors import UserError

TOKEN = "SPML_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Serve(ModelOptions, DecodeOptions):
    """Serve a web page and HTTP endpoint that tag pictures or features.

    Example: spml serve runs/photos --port 7860
    """

    order: ClassVar[int] = 130

    host: str = "127.0.0.1"
    """Address to listen on. The default serves this machine alone; 0.0.0.0 admits others, so give a
    token."""
    port: int = 7860
    """Port to listen on; 0 chooses a free one."""
    token: str | None = None
    """Password that browsers and programs must send. Default: the environment's SPML_TOKEN, which
    other users of the machine cannot see; without either, no password."""
    certificate: Path | None = None
    """PEM file of a TLS certificate, to serve HTTPS."""
    key: Path | None = None
    """PEM file of the certificate's private key. Default: in the certificate's file."""
    max_megabytes: float = 20.0
    """Largest picture file to accept."""
    max_pixels: float | None = 50e6
    """Largest picture to accept, width times height; at most 178 million."""

    def run(self) -> None:
        """Serve until interrupted."""
        if not 0 < self.max_megabytes < 1e12:
            raise UserError(f"--max-megabytes must be above 0, not {self.max_megabytes:g}")
        token = os.environ.get(TOKEN) if self.token is None else self.token
        if token == "":
            raise UserError(f"--token or {TOKEN} is empty; give a password, or neither")
        if self.key is not None and self.certificate is None:
            raise UserError("--key needs --certificate, the file of the certificate itself")
        from spml.use.serve.serve import LOOPBACK, Access, check_packages, serve

        check_packages()
        from spml.data.images.decode import pixel_limit
        from spml.use.serve.tagger import Limits

        limits = Limits(bytes=int(self.max_megabytes * 1e6), pixels=pixel_limit())
        run = self.model()
        if token is None and self.host not in LOOPBACK:
            log("everyone who reaches this address can use the model; --token asks for a password")
        access = Access(self.host, self.port, token, self.certificate, self.key)
        serve(run, access, limits)
