"""Synthetic driving scenes with true boxes: a street by day or night, people, riders, cars.

They stand in for BDD100K images, which cannot be shipped. A pinhole camera over a flat street sets
every size: what stands farther up the image is smaller. Drawn three times larger and reduced, so
that small things are blurred as a lens would blur them. The same seed gives the same scenes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

WIDTH, HEIGHT = 160, 96  # pixels of a finished scene
SUPER = 3  # drawn this many times larger
PERSON_OVER_CAMERA = 1.17  # height of a person over that of the camera
HEIGHT_MIN, HEIGHT_MAX = 9.0, 46.0  # pixels of a standing person
SCENERY = 9.0  # streets and houses are greyer than clothes
VISIBLE_MIN = 0.6  # share of a box that must not be hidden to be labelled

Rgb = tuple[int, int, int]


@dataclass(frozen=True)
class Box:
    """One label: corner, size and category, in pixels of the finished scene."""

    category: str
    x: float
    y: float
    w: float
    h: float


@dataclass(frozen=True)
class Scene:
    """One image (height x width x 3, 8 bit) and all its labels."""

    timeofday: str
    weather: str
    image: np.ndarray
    boxes: tuple[Box, ...]


def draw_scene(rng: np.random.Generator) -> Scene:
    """One street with a random cast."""
    night = rng.random() < 0.45
    weather = str(rng.choice(["clear", "overcast", "rainy"], p=[0.5, 0.3, 0.2]))
    horizon = rng.uniform(37, 43)
    picture = Image.new("RGB", (WIDTH * SUPER, HEIGHT * SUPER))
    pen = _Pen(ImageDraw.Draw(picture))
    _street(pen, rng, horizon)
    cast = _cast(rng, horizon)
    for thing in cast:
        _DRAWN[thing.category](pen, rng, thing)
    lamps = _lights(rng, horizon, cast) if night else []
    image = _finish(picture, rng, night=night, weather=weather, lamps=lamps)
    return Scene("night" if night else "daytime", weather, image, _visible(cast))


def retake(scene: Scene, rng: np.random.Generator) -> Scene:
    """Almost the same image again, as the next frame of a standing camera would be."""
    noise = rng.normal(0, 2.0, scene.image.shape)
    image = np.clip(scene.image * rng.uniform(0.97, 1.03) + noise, 0, 255)
    return replace(scene, image=image.astype(np.uint8))


# -- who is there ------------------------------------------------------------------------------


_SHAPES = {"person": (0.40, 1.0), "rider": (0.72, 1.02), "car": (1.9, 0.85), "post": (0.12, 1.9)}
_SEATS = {"person": 2.0, "rider": 1.1, "car": 1.8, "post": 2.2}  # mean number in a scene


def _cast(rng: np.random.Generator, horizon: float) -> list[Box]:
    """Things from far to near; a thing of a scene hardly ever stands in front of another."""
    cast: list[Box] = []
    for category, mean in _SEATS.items():
        for _ in range(int(rng.poisson(mean))):
            person = math.exp(rng.uniform(math.log(HEIGHT_MIN), math.log(HEIGHT_MAX)))
            wide, high = _SHAPES[category]
            w, h = person * wide * rng.uniform(0.9, 1.1), person * high * rng.uniform(0.93, 1.05)
            ground = horizon + person / PERSON_OVER_CAMERA
            box = Box(category, rng.uniform(2, WIDTH - 2 - w), ground - h, w, h)
            fits = box.x >= 1 and box.x + w <= WIDTH - 1 and ground <= HEIGHT - 2
            if fits and all(_overlap(box, other) < 0.25 for other in cast):
                cast.append(box)
    return sorted(cast, key=lambda box: box.y + box.h)


def _overlap(one: Box, two: Box) -> float:
    """Shared area over the smaller of the two."""
    w = min(one.x + one.w, two.x + two.w) - max(one.x, two.x)
    h = min(one.y + one.h, two.y + two.h) - max(one.y, two.y)
    return max(w, 0.0) * max(h, 0.0) / min(one.w * one.h, two.w * two.h)


def _visible(cast: list[Box]) -> tuple[Box, ...]:
    """Labels of what can be seen; posts are scenery and have none."""
    kept = []
    for number, box in enumerate(cast):
        hidden = max((_overlap(box, nearer) for nearer in cast[number + 1 :]), default=0.0)
        if box.category != "post" and 1 - hidden >= VISIBLE_MIN:
            kept.append(box)
    return tuple(kept)


# -- how it looks ------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Pen:
    """Draws in pixels of the finished scene."""

    to: ImageDraw.ImageDraw

    def shape(self, kind: str, x: float, y: float, w: float, h: float, fill: Rgb) -> None:
        corners = (x * SUPER, y * SUPER, (x + w) * SUPER, (y + h) * SUPER)
        getattr(self.to, kind)(corners, fill=fill)

    def ring(self, x: float, y: float, size: float, fill: Rgb) -> None:
        corners = (x * SUPER, y * SUPER, (x + size) * SUPER, (y + size) * SUPER)
        self.to.ellipse(corners, outline=fill, width=max(1, round(size * SUPER * 0.14)))

    def line(self, points: list[tuple[float, float]], thick: float, fill: Rgb) -> None:
        scaled = [(x * SUPER, y * SUPER) for x, y in points]
        self.to.line(scaled, fill=fill, width=max(1, round(thick * SUPER)), joint="curve")

    def polygon(self, points: list[tuple[float, float]], fill: Rgb) -> None:
        self.to.polygon([(x * SUPER, y * SUPER) for x, y in points], fill=fill)


def _tone(rng: np.random.Generator, low: int, high: int, spread: float = 22.0) -> Rgb:
    """A muted colour: a grey, and how far each channel may lie from it."""
    grey = rng.uniform(low, high)
    red, green, blue = (int(np.clip(grey + rng.normal(0, spread), 8, 245)) for _ in range(3))
    return red, green, blue


def _street(pen: _Pen, rng: np.random.Generator, horizon: float) -> None:
    sky = _tone(rng, 165, 225, SCENERY)
    pen.shape("rectangle", 0, 0, WIDTH, horizon, sky)
    at = 0.0
    while at < WIDTH:  # houses with windows
        wide, high = rng.uniform(12, 34), rng.uniform(12, 36)
        wall = _tone(rng, 85, 165, SCENERY)
        pen.shape("rectangle", at, horizon - high, wide, high + 2, wall)
        glass = _tone(rng, 55, 110)
        for x in np.arange(at + 2, at + wide - 3, 5.0):
            for y in np.arange(horizon - high + 3, horizon - 5, 6.0):
                pen.shape("rectangle", x, y, 2.2, 3.0, glass)
        at += wide + rng.choice([0.0, 0.0, 5.0])
    pen.shape("rectangle", 0, horizon, WIDTH, HEIGHT - horizon, _tone(rng, 125, 165, SCENERY))
    middle = WIDTH / 2 + rng.uniform(-22, 22)
    near, far = rng.uniform(80, 120), rng.uniform(2, 5)
    road = _tone(rng, 65, 105, SCENERY)
    edges = [(middle - far, horizon), (middle + far, horizon)]
    pen.polygon([*edges, (middle + near, HEIGHT), (middle - near, HEIGHT)], road)
    for step in np.geomspace(3, HEIGHT - horizon, 7):  # dashes of the middle line
        pen.shape("rectangle", middle - step / 40, horizon + step * 0.9, step / 20, step / 12, sky)


def _person(pen: _Pen, rng: np.random.Generator, box: Box) -> None:
    x, y, w, h = box.x, box.y, box.w, box.h
    skin, coat, legs = _tone(rng, 120, 200), _tone(rng, 25, 215), _tone(rng, 20, 95)
    middle, stride = x + w / 2, rng.uniform(0.15, 0.45) * w
    for side in (-1, 1):
        pen.line([(middle, y + 0.52 * h), (middle + side * stride, y + h)], 0.34 * w, legs)
        hand = (middle + side * 0.44 * w, y + rng.uniform(0.45, 0.56) * h)
        pen.line([(middle + side * 0.25 * w, y + 0.2 * h), hand], 0.2 * w, coat)
    pen.shape("ellipse", middle - 0.34 * w, y + 0.15 * h, 0.68 * w, 0.45 * h, coat)
    pen.shape("ellipse", middle - 0.2 * w, y, 0.4 * w, 0.17 * h, skin)


def _rider(pen: _Pen, rng: np.random.Generator, box: Box) -> None:
    x, y, w, h = box.x, box.y, box.w, box.h
    skin, coat, metal = _tone(rng, 120, 200), _tone(rng, 25, 215), _tone(rng, 15, 60)
    turn = bool(rng.random() < 0.5)

    def at(across: float, down: float) -> tuple[float, float]:
        return x + w * (1 - across if turn else across), y + h * down

    wheel = 0.44 * w
    pen.ring(x, y + h - wheel, wheel, metal)
    pen.ring(x + w - wheel, y + h - wheel, wheel, metal)
    frame = [at(0.22, 0.82), at(0.4, 0.6), at(0.74, 0.6), at(0.78, 0.82), at(0.5, 0.82)]
    pen.line([*frame, at(0.4, 0.6)], 0.05 * w, metal)
    pen.line([at(0.38, 0.53), at(0.6, 0.66), at(0.5, 0.85)], 0.14 * w, _tone(rng, 20, 95))
    pen.line([at(0.36, 0.52), at(0.52, 0.24)], 0.26 * w, coat)
    pen.line([at(0.52, 0.28), at(0.76, 0.5)], 0.1 * w, coat)
    head_x, head_y = at(0.57, 0.09)
    pen.shape("ellipse", head_x - 0.12 * w, head_y - 0.09 * h, 0.24 * w, 0.18 * h, skin)


def _car(pen: _Pen, rng: np.random.Generator, box: Box) -> None:
    x, y, w, h = box.x, box.y, box.w, box.h
    paint, glass = _tone(rng, 30, 215), _tone(rng, 60, 130)
    pen.shape("rectangle", x, y + 0.4 * h, w, 0.45 * h, paint)
    roof = [(x + 0.17 * w, y + 0.42 * h), (x + 0.28 * w, y), (x + 0.72 * w, y)]
    pen.polygon([*roof, (x + 0.83 * w, y + 0.42 * h)], paint)
    pen.shape("rectangle", x + 0.29 * w, y + 0.1 * h, 0.42 * w, 0.28 * h, glass)
    for wheel in (0.14, 0.66):
        pen.shape("ellipse", x + wheel * w, y + 0.7 * h, 0.2 * w, 0.3 * h, (18, 18, 20))


def _post(pen: _Pen, rng: np.random.Generator, box: Box) -> None:
    colour = _tone(rng, 45, 120)
    pen.shape("rectangle", box.x + box.w * 0.3, box.y, box.w * 0.4, box.h, colour)
    if rng.random() < 0.6:  # a sign, or the crown of a tree
        size = box.h * rng.uniform(0.16, 0.4)
        kind = str(rng.choice(["ellipse", "rectangle"]))
        left = box.x + box.w / 2 - size / 2
        pen.shape(kind, left, box.y, size, size * 0.9, _tone(rng, 50, 190))


_DRAWN = {"person": _person, "rider": _rider, "car": _car, "post": _post}


def _lights(
    rng: np.random.Generator, horizon: float, cast: list[Box]
) -> list[tuple[float, float, float]]:
    """(x, y, size) of street lamps and of the lights of cars."""
    lamps = [(rng.uniform(0, WIDTH), horizon - rng.uniform(6, 26), 2.6) for _ in range(4)]
    for box in cast:
        if box.category == "car":
            lamps += [(box.x + box.w * s, box.y + box.h * 0.6, box.h * 0.09) for s in (0.1, 0.9)]
    return lamps


def _finish(
    picture: Image.Image,
    rng: np.random.Generator,
    *,
    night: bool,
    weather: str,
    lamps: list[tuple[float, float, float]],
) -> np.ndarray:
    """Light, weather and the noise of the sensor."""
    image = np.asarray(picture.resize((WIDTH, HEIGHT), Image.Resampling.BOX), dtype=np.float32)
    if weather == "overcast":
        image = 0.85 * image + 12
    elif weather == "rainy":
        blurred = Image.fromarray(image.astype(np.uint8)).filter(ImageFilter.GaussianBlur(0.7))
        image = 0.7 * np.asarray(blurred, dtype=np.float32) + 45
    if night:
        image = image * rng.uniform(0.26, 0.42)
        rows, columns = np.mgrid[0:HEIGHT, 0:WIDTH]
        for x, y, size in lamps:
            glow = np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / (2 * size**2))
            image += (glow * 190)[..., None] * np.array([1.0, 0.92, 0.7])
    image += rng.normal(0, 5.0 if night else 3.5, image.shape)
    return np.clip(image, 0, 255).astype(np.uint8)
