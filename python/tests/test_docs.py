"""The examples of docs/python.md run, and examples/python."""

import contextlib
import io
import pathlib
import re
import runpy
import unittest

ROOT = pathlib.Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"


class TestExamples(unittest.TestCase):
    def test_python(self):
        examples = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), flags=re.M | re.S)
        said, names = io.StringIO(), {}
        with contextlib.redirect_stdout(said):
            for example in examples:
                exec(example, names)
        for words in "('mlx5_0',) 12500000000 nearest usable port", "page 7", "12000)]":
            self.assertIn(words, said.getvalue())

    def test_programs(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            runpy.run_path(str(ROOT / "examples" / "python" / "hello.py"))
        self.assertRegex(said.getvalue(), r"^over every NIC\n\S+ 1048576\n")


if __name__ == "__main__":
    unittest.main()
