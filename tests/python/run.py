"""run.py BUILD -- the tests of the Python package, with the library in the build folder BUILD. Exit code 77: NumPy or pytest is missing."""
import os
import sys
from pathlib import Path

os.environ["NNC_BUILD"] = os.path.abspath(sys.argv[1])
try:
    import numpy
    import pytest
except ImportError as missing:
    print(f"skipped: {missing} ({sys.executable}; apt-get install python3-numpy python3-pytest)")
    sys.exit(77)
print(f"python: {sys.executable} {sys.version.split()[0]}, NumPy {numpy.__version__}")
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", str(Path(__file__).parent), *sys.argv[2:]]))
