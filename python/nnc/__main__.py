"""python -m nnc: the program nnc, with these arguments."""

import os
import sys

from ._lib import program


def main():
    path = program()
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    main()
