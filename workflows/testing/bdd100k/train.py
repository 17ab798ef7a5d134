"""Train the detector of one failure mode on its view; pick its threshold on a part kept aside."""

from __future__ import annotations

import argparse
import time

import table as lance
from detector import detect, pack
from measure import measure
from modes import MODES
from training import train

from npa.stage import StageArtifact

ASIDE_EVERY = 5  # each fifth scene of the view chooses the threshold and is not fitted on


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--mode", choices=sorted(MODES), required=True)
    parser.add_argument("--lance-uri", required=True)
    parser.add_argument("--view", required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--output-uri", required=True)
    options = parser.parse_args()
    mode = MODES[options.mode]
    view = lance.connect(options.lance_uri).open_table(options.view)
    rows = lance.rows_of(view, ["scene", "image", "labels"])
    scenes = [(lance.image_of(row), lance.boxes_of(row)) for row in rows]
    fitted = [scene for number, scene in enumerate(scenes) if number % ASIDE_EVERY]
    aside = scenes[::ASIDE_EVERY]
    began = time.perf_counter()
    trained = train(
        [image for image, _ in fitted],
        [boxes for _, boxes in fitted],
        mode,
        epochs=options.epochs,
        rate=options.learning_rate,
        seed=options.seed,
    )
    seconds = time.perf_counter() - began
    hits = [(detect(trained.model, image, mode), boxes) for image, boxes in aside]
    chosen = measure(hits, mode)
    if not chosen.curve:
        raise SystemExit("the detector finds nothing at all, so there is no threshold to choose")
    output = StageArtifact(options.output_uri)
    output.join("model.npz").write_bytes(pack(trained.model))
    output.join("training.json").write_json(
        {
            "mode": mode.name,
            "view": options.view,
            "fitted_on": len(fitted),
            "windows": {"positive": trained.positives, "negative": trained.negatives},
            "losses": trained.losses,
            "fit_seconds": round(seconds, 2),
            "threshold": chosen.best_threshold(),
            "threshold_chosen_on": len(aside),
            "scenes": [row["scene"] for row in rows],
        }
    )
    print(f"{mode.title}: {len(fitted)} scenes, loss {trained.losses[-1]:.3f}, {seconds:.1f} s")


if __name__ == "__main__":
    main()
