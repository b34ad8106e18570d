// Points of a figure that a person drags along an axis (layout.meta.handles): a position is a proposal, which the kernel draws;
// releasing the pointer or Enter requests it, Escape takes it back.

const DRAG_MS = 60 // between two messages of a handle that is dragged
const NEAR = 48, AIM_MS = 1000 // pixels from a handle, and time since it moved there, in which a pointer is about to take it

function dlHandles(plot, area, tell) {
  const dots = {}
  let aimed = 0
  area.addEventListener("pointermove", ({clientX, clientY}) => {
    const isNear = (dot) => {
      const {left, right, top, bottom} = dot.getBoundingClientRect()
      return clientX > left - NEAR && clientX < right + NEAR && clientY > top - NEAR && clientY < bottom + NEAR
    }
    aimed = Object.values(dots).some(isNear) ? Date.now() : 0
  })
  const axisOf = (along) => plot._fullLayout[`${along}axis`]
  const move = (dot, along, value) => {
    const axis = axisOf(along)
    dot.style[along === "x" ? "left" : "top"] = `${axis._offset + axis.l2p(value)}px`
  }

  function add(name) {
    const dot = dlMake("div", {class: "dl-handle", role: "slider", tabindex: 0})
    let sent = 0, at = null
    // measured from the figure's own origin: it may have moved on under a pointer that rests
    const measured = () => {
      const {along, low, high} = dot.spec, axis = axisOf(along)
      return Math.min(high, Math.max(low, axis.p2l(at[along] - plot.getBoundingClientRect()[along] - axis._offset)))
    }
    const say = (kind, value) => { sent = Date.now(); tell({kind, handle: name, value: (value - (dot.spec.origin ?? 0)) * (dot.spec.scale ?? 1)}) }
    const grip = () => tell({kind: "gripped", handle: name})
    const cancel = () => { dot.moved = false; tell({kind: "cancelled", handle: name}) }
    dot.addEventListener("keydown", (event) => {
      const {along, low, high, step = (high - low) / 50} = dot.spec
      const steps = {ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity}
      if (event.key === "Escape") { dot.held = false; at = null; dot.classList.remove("held"); cancel() }
      else if (event.key === "Enter" && dot.moved) { dot.moved = false; say("released", dot.spec[along]) }
      else if (event.key in steps && !dot.held) {
        dot.spec = {...dot.spec, [along]: Math.min(high, Math.max(low, dot.spec[along] + step * steps[event.key]))}
        if (!dot.moved) grip()
        dot.moved = true
        move(dot, along, dot.spec[along])
        say("dragged", dot.spec[along])
      } else return
      event.preventDefault()
    })
    dot.addEventListener("blur", () => { if (dot.moved) cancel() })
    dot.addEventListener("pointerdown", (event) => {
      dot.held = true
      grip()
      dot.classList.add("held")
      dot.setPointerCapture(event.pointerId)
      dot.focus()
      event.preventDefault()
    })
    dot.addEventListener("pointermove", (event) => {
      if (!dot.held) return
      at = {x: event.clientX, y: event.clientY}
      move(dot, dot.spec.along, measured())
      if (Date.now() - sent > DRAG_MS) say("dragged", measured())
    })
    const drop = (kind) => () => {
      if (!dot.held) return
      dot.held = false
      aimed = 0
      dot.classList.remove("held")
      if (at && kind === "released") say(kind, measured())
      else if (at) cancel()
      at = null
    }
    dot.addEventListener("pointerup", drop("released"))
    dot.addEventListener("pointercancel", drop("cancelled"))
    area.append(dot)
    return dot
  }

  return {
    // whether a person is about to take a handle, which must not move away
    isAimedAt: () => Date.now() - aimed < AIM_MS,
    // the handles of the figure that is drawn now
    place() {
      const specs = plot.layout?.meta?.handles ?? []
      for (const [name, dot] of Object.entries(dots)) {
        if (!specs.some((spec) => spec.name === name) && !dot.held) { dot.remove(); delete dots[name] }
      }
      for (const spec of specs) {
        const dot = dots[spec.name] ??= add(spec.name)
        if (dot.held) continue // it stays under the pointer
        dot.spec = spec
        dot.title = spec.title
        dlText(dot, spec.label ?? "")
        const valueOf = (position) => (position - (spec.origin ?? 0)) * (spec.scale ?? 1)
        const [low, high] = [valueOf(spec.low), valueOf(spec.high)].sort((a, b) => a - b), now = valueOf(spec[spec.along])
        dlSay(dot, {
          "aria-label": spec.title, "aria-orientation": spec.along === "x" ? "horizontal" : "vertical", "aria-valuemin": low, "aria-valuemax": high,
          "aria-valuenow": now, "aria-valuetext": spec.said ?? String(now), "data-handle": spec.name,
        })
        dot.style.cursor = spec.along === "x" ? "ew-resize" : "ns-resize"
        for (const along of ["x", "y"]) move(dot, along, spec[along])
      }
    },
    clear() { for (const [name, dot] of Object.entries(dots)) { dot.remove(); delete dots[name] } },
  }
}
