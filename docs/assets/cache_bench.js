// Choose cache windows under congestion: the energy of a run's windows, computed as dtdg_lab's simulator does.
"use strict"
const cacheBench = (() => {
  // cost_of of policies/clairvoyant.py: windows are [first step, choice], ascending from step 0
  function joules(run, windows, until = run.which.length) {
    let total = 0
    windows.forEach(([first, choice], place) => {
      const end = Math.min(windows[place + 1]?.[0] ?? run.which.length, until)
      const planned = Math.min(first + run.windows[choice], run.which.length)
      for (let step = first; step < end; step++) total += run.step_j[choice][run.which[step]] * run.noise[step]
      if (end < planned && windows[place + 1] && end === windows[place + 1][0]) {
        const rebuild = step => run.rebuild_j[choice][run.which[step]] * run.noise[step]
        for (let step = end; step < planned; step++) total += rebuild(step)
        total += run.windows[choice] * rebuild(end)
      }
    })
    return total
  }

  function start(place, runs) {
    let run = runs[0], windows = [], now = 0
    const element = (name, attributes = {}, ...children) => {
      const made = document.createElement(name)
      for (const [key, value] of Object.entries(attributes)) {
        key.startsWith("on") ? made.addEventListener(key.slice(2), value) : made.setAttribute(key, value)
      }
      made.append(...children)
      return made
    }
    const button = (text, act) => element("button", {type: "button", class: "bench-button", onclick: act}, text)
    const radios = (title, name, values, first) => element("fieldset", {class: "bench-radios"}, element("legend", {}, title),
      ...values.map(([value, text]) => {
        const input = element("input", {type: "radio", name, value})
        input.checked = value === first
        return element("label", {}, input, text)
      }))
    const picked = name => +place.querySelector(`input[name=${name}]:checked`).value
    const steps = () => run.which.length
    const done = () => now >= steps()
    const preferred = choice => Math.floor(choice / run.sizes.length) % run.parts
    const named = choice => choice >= run.sizes.length * run.parts ? `W = ${run.windows[choice]}` :
      `W = ${run.windows[choice]}, ${preferred(choice) ? `most for partition ${preferred(choice)}` : "shared evenly"}`

    function choose() {
      if (done()) return
      const choice = run.sizes.indexOf(picked("window")) + run.sizes.length * picked("prefer")
      windows.push([now, choice])
      now = Math.min(steps(), now + run.windows[choice])
      draw()
    }
    function again() { windows = []; now = 0; draw() }
    function back() { if (windows.length) { now = windows.pop()[0]; draw() } }

    function chart() {
      const left = 84, width = 664, high = 130, x = step => left + step / steps() * width
      const top = Math.max(...run.late_ms.flat()) * 1.08 || 1, y = late => 14 + high - late / top * high
      const parts = []
      for (const tick of [0, top / 2.16, top / 1.08]) parts.push(
        `<line class="bench-grid" x1="${left}" x2="${left + width}" y1="${y(tick)}" y2="${y(tick)}"/>
         <text x="${left - 6}" y="${y(tick) + 4}" text-anchor="end">${tick.toFixed(0)} ms</text>`)
      for (let part = 1; part < run.parts; part++) {
        let path = ""
        for (let step = 0; step < now; step++) {
          const level = y(run.late_ms[run.which[step]][part - 1])
          path += `${path ? "L" : "M"}${x(step)} ${level}L${x(step + 1)} ${level}`
        }
        if (path) parts.push(`<path class="bench-line part${part}" d="${path}"/>`)
        parts.push(`<line class="bench-line part${part}" x1="${left + 150 * part - 120}" x2="${left + 150 * part - 95}"
          y1="${high + 62}" y2="${high + 62}"/><text x="${left + 150 * part - 90}" y="${high + 66}">partition ${part}</text>`)
      }
      for (let step = 0; step <= steps(); step += run.epoch_steps * 2) parts.push(
        `<text x="${x(step)}" y="${high + 30}" text-anchor="middle">${step}</text>`)
      parts.push(`<text x="${left + width / 2}" y="${high + 46}" text-anchor="middle">step</text>`)
      let row = high + 76
      const band = (title, of, until) => {
        parts.push(`<text x="${left - 6}" y="${row + 14}" text-anchor="end">${title}</text>`)
        of.forEach(([first, choice], place) => {
          const end = Math.min(of[place + 1]?.[0] ?? first + run.windows[choice], until)
          const wide = x(end) - x(first), even = choice >= run.sizes.length * run.parts || !preferred(choice)
          parts.push(`<rect class="bench-window ${even ? "even" : `part${preferred(choice)}`}" x="${x(first)}" y="${row}"
            width="${wide}" height="20"><title>${named(choice)}</title></rect>`)
          if (wide > 22) parts.push(`<text class="on-window" x="${x(first) + wide / 2}" y="${row + 14}">${run.windows[choice]}</text>`)
        })
        row += 26
      }
      band("you", windows, now)
      if (done()) for (const [title, of] of ranked()) if (title !== "you") band(title, of, steps())
      return `<svg viewBox="0 0 760 ${row + 4}" role="img" aria-label="Lateness of replies up to step ${now}, and your windows">
        <text x="4" y="9">later by</text>${parts.join("")}</svg>`
    }
    const ranked = () => Object.entries({...run.rivals, you: windows}).sort((a, b) => joules(run, a[1]) - joules(run, b[1]))

    function words() {
      if (done()) {
        const best = joules(run, run.rivals.clairvoyant), mine = joules(run, windows)
        return `The run has ended: your choices took ${mine.toFixed(0)} J, ${(100 * (mine / best - 1)).toFixed(1)} % more than the `
          + "clairvoyant plan, which knows the links in advance."
      }
      if (!now) return `Step 0 of ${steps()}. Choose the first cache; nothing is known of the links yet.`
      const late = [...Array(run.parts - 1).keys()].map(part => run.late_ms[run.which[now - 1]][part])
      const slow = late.map((ms, part) => ms >= 1 ? `partition ${part + 1} by ${ms.toFixed(0)} ms` : "").filter(text => text)
      const [, choice] = windows.at(-1), used = joules(run, windows, now)
      return `Step ${now} of ${steps()}, ${used.toFixed(0)} J so far. Late now: ${slow.join(", ") || "none"}. The last cache `
        + `(${named(choice)}) held ${(100 * run.hits[choice]).toFixed(0)} % of the rows asked for.`
    }
    function table() {
      const best = joules(run, run.rivals.clairvoyant)
      const head = ["", "energy", "above the clairvoyant", "caches"].map(text => element("th", {scope: "col"}, text))
      return element("table", {}, element("tr", {}, ...head), ...ranked().map(([title, of]) => {
        const cells = [title, `${joules(run, of).toFixed(0)} J`, `${(100 * (joules(run, of) / best - 1)).toFixed(1)} %`, of.length]
        return element("tr", title === "you" ? {class: "bench-you"} : {}, ...cells.map(cell => element("td", {}, `${cell}`)))
      }))
    }
    function draw() {
      drawing.innerHTML = chart()
      status.textContent = words()
      rebuild.disabled = keep.disabled = done()
      undo.disabled = !windows.length
      end.replaceChildren(...done() ? [table()] : [])
    }

    const menu = element("select", {"aria-label": "run", onchange: event => { run = runs[event.target.value]; again() }},
      ...runs.map((each, number) => element("option", {value: number}, each.name)))
    const rebuild = button("Build this cache", choose), undo = button("One back", back)
    const keep = button("Keep this choice to the end", () => { while (!done()) choose() })
    const drawing = element("div", {class: "bench-chart"}), end = element("div")
    const status = element("p", {class: "bench-words", "aria-live": "polite"})
    place.append(
      element("div", {class: "bench-row"}, element("label", {}, "Run: ", menu)),
      radios("Window W, steps that a cache serves", "window", run.sizes.map(size => [size, `${size}`]), 16),
      radios("Most of the cache for", "prefer", [[0, "none (even)"],
        ...[...Array(run.parts - 1).keys()].map(part => [part + 1, `partition ${part + 1}`])], 0),
      element("div", {class: "bench-row"}, rebuild, keep, undo, button("Begin again", again)), status, drawing, end)
    draw()
  }
  return {joules, start}
})()
if (typeof module !== "undefined") module.exports = cacheBench
else document.addEventListener("DOMContentLoaded", () => {
  const place = document.getElementById("cache-bench")
  if (place) cacheBench.start(place, JSON.parse(place.nextElementSibling.textContent))
})
