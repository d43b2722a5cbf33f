#!/usr/bin/env python3
"""scripts/sentences.py [FOLDER ...] -- lists sentences of more than 25 words in the comments of C files (default: src). Exits 1 if any.

Words are tokens of letters, apostrophes and hyphens: numbers, paths, formulas and names with underscores do not count. Lines that a comment
indents by four blanks or more are code, tables or pictures. Empty lines, list items and indented lines begin a sentence. Dots between two
values (0 .. n) end none.
"""
import os
import re
import sys

LIMIT = 25
TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*(.*?)\*/', re.S)  # strings first: one may contain "/*"
WORD = re.compile(r"[(\"'`]*[A-Za-z][A-Za-z'-]*[)\"'`.,;:!?]*$")
END = re.compile(r"(?<!\.)[.!?][)\"'`]*$")
ABBREVIATION = re.compile(r"\b(e\.g|i\.e|cf|vs|No)\.$")
ITEM = re.compile(r"\s*(-|\*|[0-9]+[.)]|\([0-9a-z]\)) ")


def lines_of(comment):
    """The comment's lines without the stars or blanks that align them."""
    lines = comment.split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), default=0)
    return [lines[0].strip()] + [re.sub(r"^\* ?", "", line[margin:].rstrip()) for line in lines[1:]]


def sentences(comment):
    """Yields (line within the comment, words of the sentence)."""
    begin, words, before = 0, [], 0
    for i, line in enumerate(lines_of(comment)):
        indent = len(line) - len(line.lstrip())
        if not line or 0 < indent <= before or indent >= 4 or (indent == 0) != (before == 0) or ITEM.match(line):
            yield begin, words
            words = []
        before = indent
        for token in line.split() if indent < 4 else []:
            if words and words[-1].endswith("..") and token[0].isupper():
                yield begin, words
                words = []
            begin = begin if words else i
            words.append(token)
            if END.search(token) and not ABBREVIATION.search(token):
                yield begin, words
                words = []
    yield begin, words


def is_long(words):
    return sum(1 for word in words if WORD.match(word)) > LIMIT


def comments(text):
    """Yields (line, comment without its delimiters)."""
    for match in TOKEN.finditer(text):
        if match.group(1) is not None:
            yield text.count("\n", 0, match.start()) + 1, match.group(1)


def long_sentences(path):
    """Yields (line, sentence) of one file."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for first, comment in comments(text):
        for line, words in sentences(comment):
            if is_long(words):
                yield first + line, " ".join(words)


def main(roots):
    found = False
    for root in roots:
        for folder, _, files in sorted(os.walk(root)):
            for path in sorted(os.path.join(folder, file) for file in files if file.endswith((".c", ".h", ".def"))):
                for line, sentence in long_sentences(path):
                    print(f"{path}:{line}: {sentence}")
                    found = True
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["src"]))
