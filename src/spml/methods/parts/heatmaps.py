"""Heat maps of whole pictures, updated from the part that each visit shows."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WHOLE = (0.0, 0.0, 1.0, 1.0)


class HeatMaps(nn.Module):
    """Running means of class maps: grid x grid cells for each item and class, in float16.

    A visit shows the part of a picture inside a box (left, top, right, bottom in 0..1; left > right
    if mirrored) as a map of any size. Sampling is bilinear: a map is read at the positions of its
    own points in the picture, and written to the cells whose centre is in the box. A cell's mean
    starts with its first value, and `momentum` is the weight of the old mean at later visits; cells
    outside the box do not change.
    """

    maps: Tensor
    seen: Tensor

    def __init__(self, items: int, classes: int, grid: int, momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.register_buffer("maps", torch.zeros(items, classes, grid, grid, dtype=torch.float16))
        self.register_buffer("seen", torch.zeros(items, grid, grid, dtype=torch.bool))

    @staticmethod
    def memory(items: int, classes: int, grid: int) -> int:
        """Bytes of the heat maps."""
        return items * grid**2 * (2 * classes + 1)

    def read(self, rows: Tensor, boxes: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
        """Stored values at the positions of a visit's map, (B, classes, height, width), and a mask.

        The mask, (B, 1, height, width), is True if at least half of the weight of a value was seen.
        """
        points = _points(boxes, height, width)
        share = _sampled(self.seen[rows].float()[:, None], points)
        values = _sampled(self.maps[rows].float(), points)  # unseen cells hold 0
        known = share >= 0.5
        return values / torch.where(known, share, 1.0), known

    @torch.no_grad()
    def write(self, rows: Tensor, boxes: Tensor, maps: Tensor) -> None:
        """Update the cells inside the boxes with a visit's maps (B, classes, h, w)."""
        grid = self.maps.shape[-1]
        points = _points(_inverse(boxes), grid, grid)
        inside = (points.abs() <= 1).all(dim=-1)
        fresh = _sampled(maps.float(), points)
        before, seen = self.maps[rows].float(), self.seen[rows]
        moved = torch.where(seen[:, None], torch.lerp(fresh, before, self.momentum), fresh)
        self.maps[rows] = torch.where(inside[:, None], moved, before).to(self.maps.dtype)
        self.seen[rows] = seen | inside


def whole(items: int, device: torch.device) -> Tensor:
    """Boxes that cover whole pictures."""
    return torch.tensor(WHOLE, device=device).repeat(items, 1)


def _inverse(boxes: Tensor) -> Tensor:
    """The whole pictures as boxes, in coordinates in which the boxes reach from 0 to 1."""
    corner, opposite = boxes.to(torch.float32).chunk(2, dim=1)
    return torch.cat([-corner / (opposite - corner), (1 - corner) / (opposite - corner)], dim=1)


def _points(boxes: Tensor, height: int, width: int) -> Tensor:
    """Centres of height x width cells of the boxes, (B, height, width, 2), in -1..1."""
    left, top, right, bottom = boxes.to(torch.float32).unbind(dim=1)
    across = _centres(width, boxes) * (right - left)[:, None, None] + left[:, None, None]
    down = _centres(height, boxes)[:, None] * (bottom - top)[:, None, None] + top[:, None, None]
    return 2 * torch.stack([across.expand(-1, height, -1), down.expand(-1, -1, width)], dim=-1) - 1


def _centres(count: int, like: Tensor) -> Tensor:
    return (torch.arange(count, dtype=torch.float32, device=like.device) + 0.5) / count


def _sampled(maps: Tensor, points: Tensor) -> Tensor:
    return F.grid_sample(maps, points, padding_mode="border", align_corners=False)
