// Two columns of tokens joined by attention weights; only the strongest lines are drawn, so that long texts stay fast.
import {element, formatNumber} from "./element.js"
import {at} from "./matrix.js"

const [MOST, SPACE] = [400, 240] // lines drawn, pixels between the columns

/** `<seq-lines>`: `show({values, left, right, what})`; event `point` with {row, column}, one of them null. */
export class Lines extends HTMLElement {
  connectedCallback() {
    if (this.canvas) return
    this.canvas = element("canvas", {tabIndex: 0, role: "img", "data-key": "lines"})
    this.append(element("div", {class: "wide"}, this.canvas))
    this.readout = element("output", {class: "readout", "aria-live": "polite"})
    this.append(this.readout)
    this.canvas.addEventListener("pointermove", event => this.point(this.tokenAt(event)))
    this.canvas.addEventListener("pointerleave", () => this.point(null))
    this.canvas.addEventListener("keydown", event => this.onKey(event))
    this.canvas.addEventListener("blur", () => this.point(null))
  }

  show(options) {
    this.options = options
    this.pointed = null
    this.canvas.setAttribute("aria-label",
      `${options.what}. Up and down move through the tokens, left and right change the side.`)
    const {values} = options, weights = values.data
    this.strongest = Array.from(weights.keys()).filter(place => weights[place] > 0.01)
      .sort((a, b) => weights[b] - weights[a])
    this.draw()
    this.updateReadout()
  }

  highlight(cell) {
    this.pointed = cell
    this.draw()
    this.updateReadout()
  }

  draw() {
    if (!this.options || !this.isConnected) return
    const {values, left, right} = this.options, style = getComputedStyle(this)
    const [ink, muted, accent] = ["--ink", "--muted", "--accent"].map(name => style.getPropertyValue(name))
    const longer = Math.max(left.length, right.length), pitch = Math.min(22, Math.max(12, 900 / longer))
    const context = this.canvas.getContext("2d"), sharp = window.devicePixelRatio || 1
    const font = `${Math.min(13, pitch * 0.85)}px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif`
    context.font = font
    const longest = names => Math.min(140, Math.max(20, ...names.map(name => context.measureText(name).width)))
    const start = longest(left) + 14, end = start + SPACE
    const [width, height] = [end + longest(right) + 14, longer * pitch + 8]
    this.place = {start, end, pitch, y: [left, right].map(names => 4 + (longer - names.length) / 2 * pitch)}
    this.canvas.width = width * sharp
    this.canvas.height = height * sharp
    this.canvas.style.width = `${width}px`
    this.canvas.style.height = `${height}px`
    context.scale(sharp, sharp)
    context.font = font
    const middle = (side, k) => this.place.y[side] + (k + 0.5) * pitch
    const cell = this.pointed
    const seen = this.strongest.filter(place => {
      const row = Math.floor(place / values.columns), column = place % values.columns
      return !cell || row === cell.row || (cell.row === null && column === cell.column)
    }).slice(0, MOST)
    context.strokeStyle = accent
    for (const place of seen.reverse()) {
      const row = Math.floor(place / values.columns), column = place % values.columns, weight = values.data[place]
      context.globalAlpha = 0.08 + 0.85 * Math.min(1, weight)
      context.lineWidth = 0.7 + 2.3 * Math.min(1, weight)
      context.beginPath()
      context.moveTo(start, middle(0, row))
      context.bezierCurveTo(start + SPACE / 2, middle(0, row), end - SPACE / 2, middle(1, column), end,
        middle(1, column))
      context.stroke()
    }
    context.globalAlpha = 1
    context.textBaseline = "middle"
    for (const [side, names, x, align] of [[0, left, start - 6, "right"], [1, right, end + 6, "left"]]) {
      context.textAlign = align
      names.forEach((name, k) => {
        const here = cell && (side === 0 ? cell.row : cell.column) === k
        context.fillStyle = here ? accent : cell ? muted : ink
        context.fillText(name, x, middle(side, k), 140)
      })
    }
  }

  tokenAt(event) {
    const {left, right} = this.options, {start, end, pitch, y} = this.place, box = this.canvas.getBoundingClientRect()
    const side = event.clientX - box.left < (start + end) / 2 ? 0 : 1
    const k = Math.floor((event.clientY - box.top - y[side]) / pitch)
    if (k < 0 || k >= (side ? right : left).length) return null
    return side ? {row: null, column: k} : {row: k, column: null}
  }

  point(cell) {
    if (cell?.row === this.pointed?.row && cell?.column === this.pointed?.column) return
    this.highlight(cell)
    this.dispatchEvent(new CustomEvent("point", {detail: cell}))
  }

  onKey(event) {
    const from = this.pointed ?? {row: 0, column: null}, {left, right} = this.options
    if (event.key === "ArrowLeft") this.point({row: from.row ?? 0, column: null})
    else if (event.key === "ArrowRight") this.point({row: null, column: from.column ?? 0})
    else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault()
      const step = !this.pointed ? 0 : event.key === "ArrowUp" ? -1 : 1
      const moved = (k, names) => k === null ? null : Math.min(names.length - 1, Math.max(0, k + step))
      this.point({row: moved(from.row, left), column: moved(from.column, right)})
    }
  }

  /** Write the four largest weights from or to the selected token. */
  updateReadout() {
    const {values, left, right} = this.options, cell = this.pointed
    if (!cell) return void this.readout.replaceChildren(element("span", {class: "hint"},
      "Point at a token to see only its lines."))
    const from = cell.row !== null, names = from ? right : left
    const weights = names.map((name, k) => [name, from ? at(values, cell.row, k) : at(values, k, cell.column)])
    weights.sort((a, b) => b[1] - a[1])
    this.readout.replaceChildren(element("bdi", {}, from ? left[cell.row] : right[cell.column]),
      from ? " attends to " : " is attended to by ",
      ...weights.slice(0, 4).flatMap(([name, weight], k) => [k ? ", " : "", element("bdi", {}, name),
      ` ${formatNumber(weight)}`]))
  }
}

customElements.define("seq-lines", Lines)
