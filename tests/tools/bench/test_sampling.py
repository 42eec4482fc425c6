import os
import subprocess
import sys
from pathlib import Path

from bench.sampling import read_samples

BUSY = """
import sys, time
def work():
    while time.process_time() < float(sys.argv[1]):
        sum(range(1000))
work()
sys.exit(3)
"""


def test_samples_show_where_a_program_was_and_it_ends_as_if_alone(tmp_path: Path) -> None:
    (tmp_path / "busy.py").write_text(BUSY)
    output = tmp_path / "samples.json"
    path = f"{tmp_path}{os.pathsep}{Path(__file__).parents[1]}"
    command = [sys.executable, "-m", "bench.sampling", str(output), "busy", "0.5"]
    done = subprocess.run(command, env={"PYTHONPATH": path}, check=False)
    assert done.returncode == 3
    samples = read_samples(output)
    at_work = sum(count for stack, count in samples.items() if stack[0] == "__main__:work")
    assert at_work > 0.5 * samples.total()
