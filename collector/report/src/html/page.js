
(function () {
'use strict';
// Sorts the rows of a table by the column of a head, the largest figure or the first word first.
function sort(table, head, column) {
  var isDown = head.getAttribute('aria-sort') !== 'descending';
  var isWords = head.className === 'words';
  if (isWords) isDown = head.getAttribute('aria-sort') === 'ascending';
  Array.from(table.querySelectorAll('th[aria-sort]')).forEach(function (other) { other.removeAttribute('aria-sort'); });
  head.setAttribute('aria-sort', isDown ? 'descending' : 'ascending');
  var body = table.tBodies[0], none = 'n/a';
  // Cells of which one is no number are compared as words. What is not known comes last.
  Array.from(body.rows).map(function (row) { return [row.cells[column].textContent, row]; }).sort(function (a, b) {
    var s = a[0], t = b[0], x = Number(s.replace(/,/g, '')), y = Number(t.replace(/,/g, ''));
    var order = isWords || isNaN(x) || isNaN(y) ? s.localeCompare(t) : x - y;
    return (s === none) - (t === none) || (isDown ? -order : order);
  }).forEach(function (pair) { body.appendChild(pair[1]); });
}
document.querySelectorAll('table.sorts').forEach(function (table) {
  Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
    var button = document.createElement('button');
    while (head.firstChild) button.appendChild(head.firstChild);
    head.appendChild(button);
    button.addEventListener('click', function () { sort(table, head, column); });
  });
});

// Reads the steps of a path, from left to right: begin, end, height.
function steps(path) {
  var x = 0, y = 0, all = [];
  (path.getAttribute('d').match(/[MhvV]-?\d+( \d+)?/g) || []).forEach(function (move) {
    var number = parseInt(move.slice(1), 10);
    if (move[0] === 'M') { x = number; y = parseInt(move.split(' ')[1], 10); }
    if (move[0] === 'V') y = number;
    if (move[0] === 'v') y += number;
    if (move[0] === 'h') { all.push([x, x + number, y]); x += number; }
  });
  return all;
}
// Writes a value that is known to a thousandth of the highest one.
function text(value, top, unit) {
  if (value === null) return 'n/a';
  var digits = Math.max(0, 2 - Math.floor(Math.log10(top)));
  return (value > 0 ? value.toFixed(digits) : '~0') + ' ' + unit;
}
var charts = Array.from(document.querySelectorAll('svg.chart')).map(function (svg) {
  // Areas are drawn from the top one on, and listed from the bottom one on.
  var keys = svg.parentNode.querySelectorAll('b'), areas = svg.querySelectorAll('path.d').length;
  var lines = Array.from(svg.querySelectorAll('path.s')).map(function (path, at) {
    var isLayer = path.classList.contains('d'), key = keys[isLayer ? areas - 1 - at : at];
    return { steps: steps(path), isLayer: isLayer, key: key, was: key ? key.textContent : '' };
  });
  var cursor = document.createElementNS('http://www.w3.org/2000/svg', 'line');
  cursor.setAttribute('class', 'at');
  cursor.setAttribute('y1', 16);
  cursor.setAttribute('y2', svg.getAttribute('height') - 22);
  cursor.setAttribute('visibility', 'hidden');
  var time = document.createElementNS('http://www.w3.org/2000/svg', 'text');
  time.setAttribute('y', 8);
  time.setAttribute('text-anchor', 'middle');
  svg.appendChild(cursor);
  svg.appendChild(time);
  return { svg: svg, lines: lines, cursor: cursor, time: time, top: Number(svg.dataset.top), unit: svg.dataset.unit };
});
var span = charts.length ? document.querySelector('.charts').dataset : null;
// Shows all charts at a part of the run; null: as they were.
function show(part) {
  charts.forEach(function (chart) {
    chart.cursor.setAttribute('visibility', part === null ? 'hidden' : 'visible');
    chart.time.textContent = part === null ? '' : text(part * span.span, span.span, span.unit);
    if (part !== null) {
      [['x1', chart.cursor], ['x2', chart.cursor], ['x', chart.time]].forEach(function (pair) { pair[1].setAttribute(pair[0], part * 100 + '%'); });
    }
    var heights = chart.lines.map(function (line) {
      var step = part === null ? null : line.steps.find(function (step) { return part * 2000 >= step[0] ? step[1] > part * 2000 : false; });
      return step ? 1000 - step[2] : null;
    });
    chart.lines.forEach(function (line, at) {
      if (!line.key) return;
      var height = heights[at], below = line.isLayer ? heights.find(function (other, i) { return i > at ? chart.lines[i].isLayer ? other !== null : false : false; }) : 0;
      if (height !== null) height -= below || 0;
      line.key.textContent = part === null ? line.was : text(height === null ? null : height / 1000 * chart.top, chart.top, chart.unit);
    });
  });
}
charts.forEach(function (chart) {
  chart.svg.addEventListener('pointermove', function (event) {
    var box = chart.svg.getBoundingClientRect();
    show(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  });
  chart.svg.addEventListener('pointerleave', function () { show(null); });
});
})();
