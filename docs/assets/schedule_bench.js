// Schedule groups by hand: the epoch of a schedule, a lower bound, and rules, computed as dtdg_lab does.
"use strict"
const scheduleBench = (() => {
  const sum = values => values.reduce((a, b) => a + b, 0)
  const order = (count, less) => [...Array(count).keys()].sort((a, b) => less(a, b) || a - b)
  const longestFirst = times => order(times.length, (a, b) => times[b] - times[a])

  // A schedule: rows[iteration][rank] lists groups
  const loads = (rows, times) => rows.map(row => row.map(part => sum(part.map(group => times[group]))))
  const makespan = (rows, times) => sum(loads(rows, times).map(row => Math.max(...row)))
  const waiting = (rows, times) => sum(loads(rows, times).flatMap(row => row.map(load => Math.max(...row) - load)))

  // lower_bound_s of schedulers/base.py, for at most two groups a rank and exchanges that take no time
  function bound(times, ranks, perRank) {
    const sorted = [...times].sort((a, b) => b - a), share = ranks * perRank
    let best = 0, head = 0
    for (let start = 0; start < sorted.length; start += share) {
      const rest = sorted.slice(start)
      best = Math.max(best, head + sum(rest) / ranks, head + few(rest, ranks, perRank))
      head += sorted[start]
    }
    return Math.max(best, head) * (1 - 1e-12)
  }
  function few(sorted, ranks, perRank) {
    let best = 0
    for (let more = 1; more <= Math.floor((sorted.length - 1) / ranks); more++) {
      best = Math.max(best, sum(sorted.slice(more * ranks - more, more * ranks + 1)))
    }
    if (perRank === 2 && sorted.length > ranks) {
      const at = place => sorted[place] ?? 0
      for (let i = 0; i < ranks; i++) best = Math.max(best, at(i) + at(2 * ranks - 1 - i))
    }
    return best
  }

  const cut = (items, length) => Array.from({length: Math.ceil(items.length / length)}, (_, i) =>
    items.slice(i * length, (i + 1) * length))
  const full = (row, ranks) => Array.from({length: ranks}, (_, rank) => row[rank] ?? [])
  const rules = {
    psg: (times, ranks) => cut([...times.keys()], ranks).map(row => full(row.map(group => [group]), ranks)),
    consecutive: (times, ranks) => cut(cut([...times.keys()], 2), ranks).map(row => full(row, ranks)),
    longest_first: (times, ranks) => cut(longestFirst(times), 2 * ranks).map(groups => {
      const row = full([], ranks)
      for (const group of groups) {
        const free = order(ranks, (a, b) => load(row[a], times) - load(row[b], times)).find(r => row[r].length < 2)
        row[free].push(group)
      }
      return row
    }),
    fold: (times, ranks) => {
      const sorted = longestFirst(times), bundles = Math.ceil(times.length / (2 * ranks)) * ranks
      const members = Array.from({length: bundles}, (_, i) => sorted[i] === undefined ? [] : [sorted[i]])
      const least = order(bundles, (a, b) => load(members[a], times) - load(members[b], times))
      sorted.slice(bundles).forEach((group, i) => members[least[i]].push(group))
      const run = order(bundles, (a, b) => load(members[b], times) - load(members[a], times))
      return cut(run.map(i => members[i]), ranks).filter(row => row.some(part => part.length))
    },
  }
  const load = (part, times) => sum(part.map(group => times[group]))

  // The page

  function start(place, data) {
    const {ranks, most} = data
    let set = data.sets[0], times, spots, chosen, revealed
    const element = (name, attributes = {}, ...children) => {
      const made = document.createElement(name)
      for (const [key, value] of Object.entries(attributes)) {
        key.startsWith("on") ? made.addEventListener(key.slice(2), value) : made.setAttribute(key, value)
      }
      made.append(...children)
      return made
    }
    const seconds = value => `${+value.toFixed(2)} s`
    const name = group => `group ${group} (${seconds(times[group])})`
    const rows = () => Array.from({length: 1 + Math.max(-1, ...spots.map(spot => spot ? spot[0] : -1))}, (_, iteration) =>
      Array.from({length: ranks}, (_, rank) => held(iteration, rank))).filter(row => row.some(part => part.length))
    const held = (iteration, rank) => [...times.keys()].filter(group =>
      spots[group] && spots[group][0] === iteration && spots[group][1] === rank)

    function begin(next) {
      set = next
      times = [...set.times]
      spots = times.map(() => null)
      chosen = null
      revealed = false
      draw()
    }
    function move(group, iteration, rank) {
      const there = held(iteration, rank).filter(other => other !== group)
      if (there.length >= most) return say(`Rank ${rank} already has ${most} groups in iteration ${iteration + 1}.`)
      spots[group] = [iteration, rank]
      chosen = null
      draw(group)
    }
    // The next place with room in a direction; of a group that is not placed, the first of all
    const within = ([iteration, rank]) => iteration >= 0 && iteration < times.length && rank >= 0 && rank < ranks
    const room = ([iteration, rank]) => held(iteration, rank).length < most
    function next(group, [down, right]) {
      if (!spots[group]) return [...Array(times.length * ranks).keys()].map(i => [Math.floor(i / ranks), i % ranks]).find(room)
      let [iteration, rank] = spots[group]
      do [iteration, rank] = [iteration + down, rank + right]
      while (within([iteration, rank]) && !room([iteration, rank]))
      return within([iteration, rank]) ? [iteration, rank] : null
    }
    function keys(event, group) {
      const steps = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}
      if (event.key === "Delete" || event.key === "Backspace") {
        spots[group] = null
        draw(group)
      } else if (steps[event.key]) {
        const spot = next(group, steps[event.key])
        if (spot) move(group, ...spot)
      } else return
      event.preventDefault()
    }
    const say = text => { words.textContent = text }
    const chip = group => element("button", {
      type: "button", class: "bench-chip", draggable: "true", "data-group": group, "aria-pressed": chosen === group,
      "aria-label": name(group) + (spots[group] ? `, iteration ${spots[group][0] + 1}, rank ${spots[group][1]}` : ""),
      onclick: () => { chosen = chosen === group ? null : group; draw(group) },
      onkeydown: event => keys(event, group),
      ondragstart: event => event.dataTransfer.setData("text/plain", group),
    }, seconds(times[group]))
    const target = (iteration, rank) => ({
      ondragover: event => event.preventDefault(),
      ondrop: event => { event.preventDefault(); move(+event.dataTransfer.getData("text/plain"), iteration, rank) },
    })

    function slot(iteration, rank) {
      const here = element("button", {
        type: "button", class: "bench-here", "aria-label": `move to iteration ${iteration + 1}, rank ${rank}`,
        onclick: () => move(chosen, iteration, rank),
      }, "here")
      here.disabled = chosen === null || !room([iteration, rank])
      return element("td", target(iteration, rank), ...held(iteration, rank).map(chip), here)
    }
    function board() {
      const used = 1 + Math.max(-1, ...spots.map(spot => spot ? spot[0] : -1))
      const last = Math.min(times.length, Math.max(3, used + 1))
      const head = element("tr", {}, element("th", {scope: "col"}, "iteration"),
        ...[...Array(ranks).keys()].map(rank => element("th", {scope: "col"}, `rank ${rank}`)))
      return element("table", {class: "bench-board"}, head, ...[...Array(last).keys()].map(iteration =>
        element("tr", {}, element("th", {scope: "row"}, iteration + 1),
          ...[...Array(ranks).keys()].map(rank => slot(iteration, rank)))))
    }
    function gantt() {
      const plan = rows(), each = loads(plan, times), least = bound(times, ranks, most)
      const end = Math.max(makespan(plan, times), least), width = 700 / (1.06 * end), high = 34
      const parts = []
      let begin = 0
      plan.forEach((row, iteration) => {
        const slowest = Math.max(...each[iteration])
        row.forEach((part, rank) => {
          let at = begin
          for (const group of part) {
            const slow = each[iteration][rank] === slowest
            parts.push(`<rect class="bench-block${slow ? " slow" : ""}" x="${40 + at * width}" y="${rank * (high + 8)}"
              width="${times[group] * width}" height="${high}"/><text x="${40 + (at + times[group] / 2) * width}"
              y="${rank * (high + 8) + 22}" class="on-block">${seconds(times[group])}</text>`)
            at += times[group]
          }
          if (slowest > each[iteration][rank]) parts.push(`<rect class="bench-wait" x="${40 + at * width}"
            y="${rank * (high + 8)}" width="${(begin + slowest - at) * width}" height="${high}"/>`)
        })
        begin += slowest
      })
      const bottom = ranks * (high + 8), line = 40 + least * width
      for (let rank = 0; rank < ranks; rank++) parts.push(`<text x="0" y="${rank * (high + 8) + 22}">rank ${rank}</text>`)
      parts.push(`<line class="bench-bound" x1="${line}" x2="${line}" y1="0" y2="${bottom}"/>
        <text x="${line}" y="${bottom + 14}" text-anchor="end">bound ${seconds(least)}</text>`)
      chart.innerHTML = `<svg viewBox="0 0 760 ${bottom + 20}" role="img" aria-label="Gantt chart of your schedule">
        <defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <line x1="0" x2="0" y1="0" y2="6" class="bench-hatch"/></pattern></defs>${parts.join("")}</svg>`
    }
    function described() {
      const left = spots.filter(spot => !spot).length, plan = rows()
      if (left) return `${left} of ${times.length} groups are left to place.`
      const end = makespan(plan, times), least = bound(times, ranks, most), over = 100 * (end / least - 1)
      const above = over < 1e-6 ? "optimal: it reaches the bound" : `${over.toFixed(1)} % above the bound of ${seconds(least)}`
      return `Your epoch takes ${seconds(end)}, ${above}. The ranks wait ${seconds(waiting(plan, times))}.`
    }
    function outcomes() {
      const plans = Object.fromEntries(Object.entries(rules).map(([rule, make]) => [rule, make(times, ranks)]))
      if (times.every((time, group) => time === set.times[group])) Object.assign(plans, set.rules)
      const show = plan => () => {
        plan.forEach((row, iteration) => row.forEach((part, rank) => part.forEach(group => { spots[group] = [iteration, rank] })))
        draw()
      }
      const line = ([rule, plan]) => element("tr", {}, element("td", {}, element("code", {}, rule)),
        element("td", {}, seconds(makespan(plan, times))), element("td", {}, seconds(waiting(plan, times))),
        element("td", {}, element("button", {type: "button", class: "bench-button", onclick: show(plan)}, "Show")))
      const head = ["rule", "epoch", "waiting", ""].map(text => element("th", {scope: "col"}, text))
      const sorted = Object.entries(plans).sort((a, b) => makespan(a[1], times) - makespan(b[1], times))
      return element("table", {class: "bench-rules"}, element("tr", {}, ...head), ...sorted.map(line))
    }
    function draw(focus) {
      tray.replaceChildren(...[...times.keys()].filter(group => !spots[group]).map(chip))
      if (!tray.children.length) tray.append("all groups are placed")
      middle.replaceChildren(board())
      gantt()
      say(described())
      const complete = spots.every(spot => spot)
      revealed ||= complete
      others.replaceChildren(revealed ? outcomes() : "The rules' schedules appear when all groups are placed.")
      sliders.replaceChildren(...times.map((time, group) => element("label", {}, `${group}`, element("input", {
        type: "number", min: 1, max: 60, step: 1, value: time, "aria-label": `seconds of group ${group}`,
        onchange: event => { times[group] = Math.min(60, Math.max(1, +event.target.value || 1)); draw() },
      }))))
      if (focus !== undefined) place.querySelector(`[data-group="${focus}"]`)?.focus()
    }

    const menu = element("select", {"aria-label": "group times",
      onchange: event => begin(data.sets[event.target.value])},
      ...data.sets.map((each, number) => element("option", {value: number}, each.name)))
    const tray = element("div", {class: "bench-tray", "aria-label": "groups to place"})
    const middle = element("div"), chart = element("div", {class: "bench-chart"})
    const words = element("p", {class: "bench-words", "aria-live": "polite"})
    const others = element("div"), sliders = element("div", {class: "bench-times"})
    place.append(
      element("div", {class: "bench-row"}, element("label", {}, "Groups: ", menu),
        element("button", {type: "button", class: "bench-button", onclick: () => begin(set)}, "Begin again")),
      tray, middle, words, chart, element("h3", {}, "The rules"), others, element("h3", {}, "Other times"), sliders)
    begin(set)
  }
  return {bound, makespan, waiting, rules, start}
})()
if (typeof module !== "undefined") module.exports = scheduleBench
else document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("schedule-bench")
  if (place) scheduleBench.start(place, JSON.parse(place.nextElementSibling.textContent))
})
