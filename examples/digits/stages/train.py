"""Train one model and measure it on the validation part. `params.model` says which kind.

logistic: multinomial logistic regression; svm: an RBF kernel machine; network: one hidden layer,
trained epoch by epoch so that its learning curve can be drawn. The refine loop runs this same
script: `iteration` makes the network wider, and `shifts` adds moved copies of each training image.
"""

from __future__ import annotations

import time

import clock
import numpy as np
from common import CLASSES, Arrays, accuracy, pack, predict, unpack
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC

from npa.stage import Stage


def logistic(images: np.ndarray, labels: np.ndarray) -> Arrays:
    fitted = LogisticRegression(C=1.0, max_iter=500).fit(images, labels)
    return {"weights0": fitted.coef_.T, "bias0": fitted.intercept_}


def svm(images: np.ndarray, labels: np.ndarray) -> Arrays:
    gamma = 1.0 / (images.shape[1] * images.var())
    fitted = SVC(C=1.0, gamma=gamma).fit(images, labels)
    return {
        "support": fitted.support_vectors_,
        "dual": fitted.dual_coef_,
        "counts": fitted.n_support_,
        "intercept": fitted.intercept_,
        "gamma": np.asarray(gamma),
    }


def network(
    fit_on: Arrays, train: Arrays, validation: Arrays, width: int, epochs: int, seed: int
) -> tuple[Arrays, list[dict[str, float]]]:
    """The network and its curve: one point an epoch, accuracies 0 to 1."""
    learner = MLPClassifier((width,), batch_size=64, learning_rate_init=3e-3, random_state=seed)
    model: Arrays = {}
    curve = []
    for epoch in range(1, epochs + 1):
        learner.partial_fit(fit_on["images"], fit_on["labels"], classes=CLASSES)
        model = {
            f"{kind}{layer}": array
            for kind, arrays in (("weights", learner.coefs_), ("bias", learner.intercepts_))
            for layer, array in enumerate(arrays)
        }
        curve.append(
            {
                "epoch": epoch,
                "loss": float(learner.loss_),
                "train": accuracy(predict(model, train["images"]), train["labels"]),
                "validation": accuracy(predict(model, validation["images"]), validation["labels"]),
            }
        )
    return model, curve


def with_shifts(part: Arrays) -> dict[str, np.ndarray]:
    """Each image five times: as it is, and moved by one pixel each way (ink may fall off)."""
    padded = np.pad(part["images"].reshape(-1, 8, 8), ((0, 0), (1, 1), (1, 1)))
    moved = [
        padded[:, down : down + 8, right : right + 8].reshape(-1, 64)
        for down, right in ((1, 1), (0, 1), (2, 1), (1, 0), (1, 2))
    ]
    return {"images": np.concatenate(moved), "labels": np.tile(part["labels"], len(moved))}


def step_of(ladder: str, iteration: int) -> int:
    """The number for `iteration`, counted from 1; the last one repeats."""
    steps = [int(step) for step in ladder.split()]
    return steps[min(iteration, len(steps)) - 1]


def main() -> None:
    stage = Stage.from_env()
    params = stage.params
    with clock.timed(stage):
        train = unpack(stage.input("digits.train.v1").read_bytes())
        validation = unpack(stage.input("digits.validation.v1").read_bytes())
        kind, iteration = str(params["model"]), int(params.get("iteration", 1))
        width = step_of(str(params["widths"]), iteration)
        fit_on = with_shifts(train) if params.get("shifts") in (True, "true") else train
        curve: list[dict[str, float]] = []
        began = time.perf_counter()
        if kind == "network":
            model, curve = network(
                fit_on, train, validation, width, int(params["epochs"]), int(params["seed"])
            )
        else:
            model = {"logistic": logistic, "svm": svm}[kind](fit_on["images"], fit_on["labels"])
        seconds = time.perf_counter() - began
        measured = accuracy(predict(model, validation["images"]), validation["labels"])
        stage.output("digits.model.v1").write_bytes(pack(model))
        stage.output("digits.metrics.v1").write_json(
            {
                "name": str(params["name"]),
                "model": kind,
                "iteration": iteration,
                "width": width if kind == "network" else None,
                "numbers": int(sum(array.size for array in model.values())),
                "fitted_on": len(fit_on["labels"]),
                "measured_on": len(validation["labels"]),
                "accuracy": measured,
                "fit_seconds": round(seconds, 3),
                "curve": curve,
            }
        )
        print(f"{params['name']}: accuracy {measured:.4f} on the validation part")


if __name__ == "__main__":
    main()
