"""Evaluate the three plain models side by side; the best is named by the validation part alone."""

from __future__ import annotations

import clock
from common import accuracy, confusion, misread, predict, unpack

from npa.stage import Stage


def main() -> None:
    stage = Stage.from_env()
    with clock.timed(stage):
        test = unpack(stage.input("digits.test.v1").read_bytes())
        measured = [a.read_json() for a in stage.inputs if a.schema == "digits.metrics.v1"]
        fitted = [a.read_bytes() for a in stage.inputs if a.schema == "digits.model.v1"]
        models = []
        for metrics, model in zip(measured, fitted, strict=True):
            predicted = predict(unpack(model), test["images"])
            models.append(
                {
                    **metrics,
                    "test_accuracy": accuracy(predicted, test["labels"]),
                    "confusion": confusion(test["labels"], predicted),
                    "misread": misread(test, predicted),
                }
            )
        best = max(models, key=lambda model: model["accuracy"])
        stage.output("digits.evaluation.v1").write_json(
            {
                "best": best["name"],
                "validation_samples": best["measured_on"],
                "test_samples": len(test["labels"]),
                "models": models,
            }
        )


if __name__ == "__main__":
    main()
