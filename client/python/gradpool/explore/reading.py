"""Reads the reports of a trial, which its workers append to a file (worker.py)."""
import json
import os

from .worker import REPORTS

_BYTES_MAX = 1 << 20    # of one read; the rest is read in the next turn


def read(folder, offset):
    """Returns (reports, bad, offset): the complete lines behind `offset` as (step, workers, time,
    values), the number of lines that are no reports, and where the next read begins."""
    try:
        with open(os.path.join(folder, REPORTS), 'rb') as file:
            file.seek(offset)
            data = file.read(_BYTES_MAX)
    except FileNotFoundError:
        return [], 0, offset
    whole = data[:data.rfind(b'\n') + 1]
    if not whole and len(data) == _BYTES_MAX:
        return [], 1, offset + len(data)    # no report is so long
    reports = [_report_of(line) for line in whole.split(b'\n') if line]
    return [one for one in reports if one], reports.count(None), offset + len(whole)


def _report_of(line):
    """Returns a report; None: the line is none, for example because the disk was full."""
    try:
        found = json.loads(line)
        step, workers = int(found['step']), int(found['workers'])
        values = {str(name): float(value) for name, value in found['values'].items()}
        return step, workers, float(found['time']), values
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
        return None
