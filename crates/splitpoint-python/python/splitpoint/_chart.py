"""What a notebook shows of a table: the lengths of its chains, beside those of an ideal hash."""

import html

_BAR, _GAP, _HEIGHT, _MARGIN = 16, 4, 120, 18
# More would be too many to see; a table that needs them has a bad hash, and the words say so.
_BARS_MAX = 48


def page(words, stats):
    """Return `words` with the chart of `stats`, in the colors of the page around it."""
    rows = [row for row in stats.chains if row[1] or row[2] >= 0.5]
    longest = max((size for size, buckets, _ in rows if buckets and size), default=0)
    rest = f"; longer ones, up to {longest:,} keys, are not drawn" if len(rows) > _BARS_MAX else ""
    summary = (
        f"Buckets by the number of their keys: {_counted(stats.bucket_count, 'bucket')}, at most "
        f"{_counted(longest, 'key')} in one. Bars are measured, lines are an ideal hash{rest}."
    )
    return (
        f"<div><code>{html.escape(words)}</code>{_svg(rows[:_BARS_MAX], summary)}"
        f'<div style="font-size: smaller">{html.escape(summary)}</div></div>'
    )


def _counted(count, what):
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _svg(rows, summary):
    width = max(len(rows) * (_BAR + _GAP) + _GAP, 200)
    most = max((max(buckets, ideal) for _, buckets, ideal in rows), default=0) or 1
    marks = []
    for index, (size, buckets, ideal) in enumerate(rows):
        left, middle = _GAP + index * (_BAR + _GAP), _GAP + index * (_BAR + _GAP) + _BAR / 2
        bar, line = (_HEIGHT * count / most for count in (buckets, ideal))
        title = f"{_counted(size, 'key')}: {_counted(buckets, 'bucket')}, ideal {ideal:,.1f}"
        marks.append(
            f"<g><title>{title}</title>"
            f'<rect x="{left}" y="{_HEIGHT - bar:.1f}" width="{_BAR}" height="{bar:.1f}" '
            'fill="#5b8fd0"/>'
            f'<path d="M{left - 1} {_HEIGHT - line:.1f}h{_BAR + 2}" stroke="currentColor" '
            'stroke-width="2"/>'
            f'<text x="{middle}" y="{_HEIGHT + _MARGIN - 5}" text-anchor="middle" font-size="10" '
            f'fill="currentColor">{size}</text></g>'
        )
    height = _HEIGHT + _MARGIN
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{html.escape(summary)}" '
        f'viewBox="0 -4 {width} {height + 4}" width="{width}" height="{height + 4}" '
        'style="display: block; max-width: 100%; margin: 0.5em 0">' + "".join(marks) + "</svg>"
    )
