"""Heat maps of whole pictures, of which every visit sees a part: where each class was found so far."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WHOLE = (0.0, 0.0, 1.0, 1.0)


class HeatMaps(nn.Module):
    """Running means of class maps, of grid x grid cells for each item and class, in float16.

    A visit shows the part of a picture that its box names (left, top, right, bottom in 0..1; left > right where it is
    mirrored) as a map of any size. All is bilinear: a map is read at the places where its own points lie in the
    picture, and written at the cells whose centre lies in the box. A cell's mean starts with the first value that is
    written to it; cells outside the box stay as they are.

    Args:
        items: of the training split.
        classes: number of them.
        grid: cells across, and down.
        momentum: share of a mean that stays at each visit.
    """

    maps: Tensor
    seen: Tensor

    def __init__(self, items: int, classes: int, grid: int, momentum: float) -> None:
        super().__init__()
        if grid < 1:
            raise ValueError(f"grid is a number of cells, at least 1, not {grid}")
        self.momentum = momentum
        self.register_buffer("maps", torch.zeros(items, classes, grid, grid, dtype=torch.float16))
        self.register_buffer("seen", torch.zeros(items, grid, grid, dtype=torch.bool))

    @staticmethod
    def memory(items: int, classes: int, grid: int) -> int:
        """Bytes that it takes."""
        return items * grid**2 * (2 * classes + 1)

    def read(self, rows: Tensor, boxes: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """What is stored where a visit's map lies: values (B, classes, height, width), and where there are any.

        The second, (B, 1, height, width), says where at least half of what a value is made of has been seen.
        """
        places = _places(boxes, height, width)
        share = _sampled(self.seen[rows].float()[:, None], places)
        values = _sampled(self.maps[rows].float(), places)  # cells never seen hold 0
        known = share >= 0.5
        return values / torch.where(known, share, 1.0), known

    @torch.no_grad()
    def write(self, rows: Tensor, boxes: Tensor, maps: Tensor) -> None:
        """Take a visit's maps (B, classes, h, w) into the means of the cells that the boxes hold."""
        grid = self.maps.shape[-1]
        places = _places(_inverse(boxes), grid, grid)
        inside = (places.abs() <= 1).all(dim=-1)
        fresh, before, seen = (
            _sampled(maps.float(), places),
            self.maps[rows].float(),
            self.seen[rows],
        )
        moved = torch.where(seen[:, None], torch.lerp(fresh, before, self.momentum), fresh)
        self.maps[rows] = torch.where(inside[:, None], moved, before).to(self.maps.dtype)
        self.seen[rows] = seen | inside


def whole(items: int, device: torch.device) -> Tensor:
    """Boxes of pictures that are seen as they are."""
    return torch.tensor(WHOLE, device=device).repeat(items, 1)


def _inverse(boxes: Tensor) -> Tensor:
    """The boxes that the whole pictures are, where the boxes themselves reach from 0 to 1."""
    corner, opposite = boxes.to(torch.float32).chunk(2, dim=1)
    return torch.cat([-corner / (opposite - corner), (1 - corner) / (opposite - corner)], dim=1)


def _places(boxes: Tensor, height: int, width: int) -> Tensor:
    """Centres of height x width cells laid over the boxes, (B, height, width, 2), in -1..1 over the picture."""
    left, top, right, bottom = boxes.to(torch.float32).unbind(dim=1)
    across = _centres(width, boxes)[None, None, :] * (right - left).view(-1, 1, 1) + left.view(
        -1, 1, 1
    )
    down = _centres(height, boxes)[None, :, None] * (bottom - top).view(-1, 1, 1) + top.view(
        -1, 1, 1
    )
    return 2 * torch.stack([across.expand(-1, height, -1), down.expand(-1, -1, width)], dim=-1) - 1


def _centres(count: int, like: Tensor) -> Tensor:
    return (torch.arange(count, device=like.device) + 0.5) / count


def _sampled(maps: Tensor, places: Tensor) -> Tensor:
    return F.grid_sample(maps, places, padding_mode="border", align_corners=False)
