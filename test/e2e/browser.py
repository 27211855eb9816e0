"""Opens pages in a real browser. Checks their text, their figures, and that no labels overlap."""
import html
import json
import re
import tempfile

import harness
from harness import WAIT_S

# Finds pieces of text that overlap another piece, and measures the width of the page.
PROBE = """<script>addEventListener('load', () => {
  const boxes = [], hits = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node; node = walker.nextNode();) {
    if (!node.data.trim() || node.parentElement.closest('script')) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) boxes.push([node.data.trim(), box]);
  }
  boxes.forEach(([name, a], i) => boxes.slice(i + 1).forEach(([other, b]) => {
    if (Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
        Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1) hits.push([name, other]);
  }));
  const said = document.createElement('pre');
  said.id = 'probe';
  said.textContent = JSON.stringify({
    labels: boxes.length, hits, width: innerWidth, wide: document.documentElement.scrollWidth,
    jobs: document.getElementById('jobs').getBoundingClientRect().right,
    low: Math.min(...Array.from(document.querySelectorAll('svg text'), text =>
      parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)),
    ground: getComputedStyle(document.body).backgroundColor});
  document.body.append(said);
});</script>"""
# background colours of the light and the dark page
GROUNDS = {1: 'rgb(255, 255, 255)', 0: 'rgb(20, 23, 27)'}


def dom(url, *options):
    """Returns the page's document after its scripts have run. Fails if the page writes to the
    console."""
    # a process of the browser may write to the profile even after the end of the first process
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        shown = harness.run(
            ['chromium-headless-shell', '--no-sandbox', '--disable-gpu',
             f'--user-data-dir={profile}', '--enable-logging=stderr', *options, '--dump-dom',
             url], capture_output=True, text=True, timeout=2 * WAIT_S, check=False)
    if shown.returncode != 0 or 'CONSOLE' in shown.stderr:
        raise AssertionError(shown.stderr)
    return shown.stdout


def check_labels(case, page, folder):
    """Checks that no labels overlap and that nothing is wider than the screen. Tries wide and
    narrow screens, in light and dark."""
    path = folder / 'probed.html'
    path.write_text(page.replace('</body>', PROBE + '</body>'))
    for width in (1280, 390):
        for scheme, ground in GROUNDS.items():
            shown = dom(path.as_uri(), f'--window-size={width},900',
                        f'--blink-settings=preferredColorScheme={scheme}')
            said = html.unescape(re.search('<pre id="probe">(.*?)</pre>', shown).group(1))
            seen = json.loads(said)
            case.assertGreater(seen['labels'], 30)
            case.assertEqual(seen['hits'], [], (width, scheme))
            case.assertEqual((seen['width'], seen['ground']), (width, ground))
            case.assertLessEqual(seen['wide'], width)
            case.assertGreaterEqual(seen['low'], 9)
            if width == 1280:
                case.assertLessEqual(seen['jobs'], width)


def data_of(shown):
    """Returns the JSON embedded in a page."""
    return json.loads(re.search('<script type="application/json" id="data">(.*?)</script>', shown,
                                re.DOTALL).group(1))


def check_run(case, path):
    """Checks that the page of a bench run shows the figures of its JSON. Returns the JSON."""
    shown = dom(path.as_uri())
    data = data_of(shown)
    for name, value in data['figures'].items():
        text = re.search(f'<dd id="{name}">(.*?)</dd>', shown).group(1)
        is_ratio = text.endswith(' %')
        said = float(text.removesuffix(' %')) / (100 if is_ratio else 1)
        case.assertAlmostEqual(said, value, delta=5.1e-5 if is_ratio else abs(value) * 1e-5,
                               msg=name)
    for i, one in enumerate(data['losses']):
        case.assertIn(f'<td id="losses-{i}">{one["jobs"]}</td>', shown)
    head, *rows = re.findall('<tr>(.*?)</tr>', re.search('<table id="jobs">(.*?)</table>', shown,
                                                         re.DOTALL).group(1))
    lost = re.findall('<th[^>]*>(.*?)</th>', head).index('lost')
    for row, job in zip(rows, data['jobs'], strict=True):
        cells = re.findall('<td[^>]*>(.*?)</td>', row)
        case.assertEqual(cells[:2], [job['job'], str(job['workers'])])
        case.assertEqual(cells[lost], f'{100 * job["loss"]:.1f} %')
    facts = dict(re.findall('<td class="name">(.*?)</td><td class="name">(.*?)</td>',
                            shown[shown.index('<table id="facts">'):]))
    case.assertEqual({k: html.unescape(v) for k, v in facts.items()}, data['facts'])
    for line in ('dedicated', 'allocated', 'used'):
        case.assertRegex(shown, rf'<path class="line {line}" d="M[0-9]')
    return data
