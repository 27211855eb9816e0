#!/usr/bin/python3
"""Writes scikit-learn's digits as CSV: one line for each image, with 64 pixels from 0 to 16 and the
class.

Usage: digits.py FILE
"""
import argparse
import sys


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n', maxsplit=1)[0])
    parser.add_argument('file', help='the CSV for gradpool-bench backup --digits')
    path = parser.parse_args().file
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        sys.exit('digits.py: scikit-learn is not installed (Debian: python3-sklearn); without '
                 '--digits the bench draws images of its own')
    digits = load_digits()
    with open(path, 'w', encoding='ascii') as file:
        for pixels, label in zip(digits.data, digits.target):
            file.write(','.join(str(int(value)) for value in [*pixels, label]) + '\n')


if __name__ == '__main__':
    main()
