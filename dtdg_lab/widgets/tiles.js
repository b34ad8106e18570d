// Tiles: one number each, with its line over the run. Python side: tiles.py.

const WIDTH = 76, HEIGHT = 26, CALM = 0.97 // the share of values that the line shows in full: one spike must not flatten it

function pathOf(values) {
  if (values.length < 2) return ""
  const sorted = [...values].sort((a, b) => a - b), low = sorted[0], high = sorted[Math.floor(CALM * (sorted.length - 1))]
  return values.map((value, at) => {
    const share = Math.min(1, (value - low) / (high - low || 1))
    return `${at ? "L" : "M"}${(at * WIDTH / (values.length - 1)).toFixed(1)} ${(HEIGHT - 2 - (HEIGHT - 4) * share).toFixed(1)}`
  }).join("")
}

export function render({model, el}) {
  const row = dlMake("div", {class: "dl-tiles", role: "group", "aria-label": "Numbers of the run"})
  el.append(dlStyle(), dlMake("div", {class: "dl-around"}, row))
  const tiles = []

  function add() {
    const label = dlMake("div", {class: "label"}), number = dlMake("span"), unit = dlMake("small"), note = dlMake("div", {class: "note"})
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS(svg.namespaceURI, "path")
    dlSay(svg, {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": true})
    dlSay(path, {"vector-effect": "non-scaling-stroke"})
    svg.append(path)
    const root = dlMake("div", {class: "dl-tile", tabindex: 0, role: "group"}, label, dlMake("div", {class: "row"}, dlMake("div", {class: "value"}, number, " ", unit), svg), note)
    row.append(root)
    tiles.push({root, label, number, unit, note, path, svg})
  }

  function draw() {
    const content = JSON.parse(model.content) ?? []
    while (tiles.length < content.length) add()
    while (tiles.length > content.length) tiles.pop().root.remove()
    content.forEach(({label, value, note, tooltip, tone, spark}, at) => {
      const tile = tiles[at], [, number, unit] = /^(\S+) ([A-Za-zµ/]+(?: [a-z]+)?)$/.exec(value) ?? [null, value, ""]
      dlText(tile.label, label)
      dlText(tile.number, number)
      dlText(tile.unit, unit)
      dlText(tile.note, note)
      tile.note.className = `note ${tone}`
      dlSay(tile.root, {"aria-label": [label, value, note].join(", "), title: tooltip, "aria-description": tooltip})
      const path = pathOf(spark)
      dlSay(tile.path, {d: path || null})
      tile.svg.style.display = path ? "" : "none"
    })
  }
  model.on("content", draw)
  draw()
}
