"""Luigi: a task a step, done when its file is there. OUT, SHAPE and STEPS come from outside."""

import os
import subprocess
from pathlib import Path

import luigi

OUT, SHAPE, STEPS = Path(os.environ["OUT"]), os.environ["SHAPE"], int(os.environ["STEPS"])


class Step(luigi.Task):
    number = luigi.IntParameter()

    def requires(self):
        return [Step(number=self.number - 1)] if SHAPE == "chain" and self.number else []

    def output(self):
        return luigi.LocalTarget(str(OUT / str(self.number)))

    def run(self):
        subprocess.run(["true"], check=True)
        Path(self.output().path).touch()


class Everything(luigi.WrapperTask):
    def requires(self):
        return (
            Step(number=STEPS - 1) if SHAPE == "chain" else [Step(number=n) for n in range(STEPS)]
        )
