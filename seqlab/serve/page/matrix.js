// A matrix of numbers on a canvas, whose cells can be read by pointer and by arrow keys.
import {colourOf, css, inkOn} from "./palette.js"
import {element, formatNumber} from "./element.js"

const [TALLEST, WIDEST, HIGHEST] = [26, 40, 620] // pixels: of a cell, and of the whole matrix

/** A grid {rows, columns, data} from lists of lists. */
export function grid(nested) {
  const rows = nested.length, columns = rows ? nested[0].length : 0
  const data = new Float64Array(rows * columns)
  nested.forEach((row, r) => row.forEach((value, c) => { data[r * columns + c] = value ?? NaN }))
  return {rows, columns, data}
}

export const at = (values, row, column) => values.data[row * values.columns + column]

/** A canvas with one pixel for each cell, to be scaled. */
function image(values, scale) {
  const canvas = element("canvas", {width: Math.max(1, values.columns), height: Math.max(1, values.rows)})
  const context = canvas.getContext("2d"), pixels = context.createImageData(canvas.width, canvas.height)
  for (let i = 0; i < values.data.length; i++) {
    const [red, green, blue] = colourOf(values.data[i], scale)
    pixels.data.set([red, green, blue, 255], 4 * i)
  }
  context.putImageData(pixels, 0, 0)
  return canvas
}

/** A small picture of a matrix, without interaction. */
export function thumbnail(values, scale, {width = 84, height = 28, label = ""} = {}) {
  const canvas = element("canvas", {width: 2 * width, height: 2 * height, class: "thumbnail", role: "img"})
  canvas.style.width = `${width}px`
  canvas.style.height = `${height}px`
  if (label) canvas.setAttribute("aria-label", label)
  else canvas.setAttribute("aria-hidden", "true")
  const context = canvas.getContext("2d")
  context.imageSmoothingEnabled = values.columns > 2 * width
  context.drawImage(image(values, scale), 0, 0, canvas.width, canvas.height)
  return canvas
}

/** `<seq-matrix>`: `show({...})` draws; events are `point` (the cell under the pointer, or null) and `pick` (a cell, by
 *  click or Enter). */
export class Matrix extends HTMLElement {
  connectedCallback() {
    if (this.canvas) return this.watcher.observe(this)
    this.canvas = element("canvas", {tabIndex: 0, role: "img", "data-key": this.dataset.name ?? "matrix"})
    this.readout = element("output", {class: "readout", "aria-live": "polite"})
    this.append(this.canvas, this.readout)
    this.canvas.addEventListener("pointermove", event => this.point(this.cellAt(event)))
    this.canvas.addEventListener("pointerleave", () => this.point(null))
    this.canvas.addEventListener("click", event => this.pick(this.cellAt(event)))
    this.canvas.addEventListener("keydown", event => this.onKey(event))
    this.canvas.addEventListener("blur", () => this.point(null))
    this.watcher = new ResizeObserver(() => this.draw())
    this.watcher.observe(this)
  }

  disconnectedCallback() {
    this.watcher?.disconnect()
  }

  /** {values: a grid, rows, columns: names, scale, what: a description for screen readers,
   *   words: [from, at], picked: {row, column} or null} */
  show(options) {
    this.options = {words: ["", ""], rows: [], columns: [], picked: null, ...options}
    this.image = image(options.values, options.scale)
    this.pointed = null
    const {rows, columns} = options.values
    this.canvas.setAttribute("aria-label", `${options.what}. ${rows} rows, ${columns} columns; `
      + "arrow keys read the cells, Enter selects one.")
    this.draw()
    this.updateReadout()
  }

  /** Highlight a cell, a row or a column. */
  highlight(cell) {
    this.pointed = cell
    this.draw()
    this.updateReadout()
  }

  layout() {
    const {values, rows, columns} = this.options
    const context = this.canvas.getContext("2d")
    context.font = FONT
    const longest = names => Math.min(110, Math.max(0, ...names.slice(0,
      600).map(name => context.measureText(name).width)))
    const wide = Math.max(160, this.clientWidth)
    const left = rows.length ? longest(rows) + 10 : 2
    const cellWidth = Math.min(WIDEST, (wide - left - 4) / values.columns)
    const cellHeight = Math.min(TALLEST, Math.max(HIGHEST / values.rows > 8 ? 8 : 0.5,
      Math.min(HIGHEST / values.rows, Math.max(14, cellWidth * 1.4 + 8))))
    const across = columns.length && cellWidth >= 10
    const upright = across && longest(columns) > cellWidth - 2
    const top = !across ? 2 : upright ? longest(columns) + 8 : 18
    return {left, top, cellWidth, cellHeight, across, upright, width: wide, height: top + cellHeight * values.rows + 2}
  }

  draw() {
    if (!this.options || !this.isConnected || !this.clientWidth) return
    const {values, rows, columns, picked} = this.options
    const place = this.place = this.layout(), sharp = window.devicePixelRatio || 1
    this.canvas.width = place.width * sharp
    this.canvas.height = place.height * sharp
    this.canvas.style.width = `${place.width}px`
    this.canvas.style.height = `${place.height}px`
    const context = this.canvas.getContext("2d"), style = getComputedStyle(this)
    const [ink, muted, accent] = ["--ink", "--muted", "--accent"].map(name => style.getPropertyValue(name))
    context.scale(sharp, sharp)
    context.font = FONT
    context.imageSmoothingEnabled = place.cellWidth < 1 || place.cellHeight < 1
    context.drawImage(this.image, place.left, place.top, place.cellWidth * values.columns,
      place.cellHeight * values.rows)
    const lit = this.pointed ?? picked ?? {}
    context.textBaseline = "middle"
    if (rows.length && place.cellHeight >= 8)
      rows.forEach((name, r) => {
        context.fillStyle = r === lit.row ? accent : muted
        context.textAlign = "right"
        context.fillText(name, place.left - 6, place.top + (r + 0.5) * place.cellHeight, 106)
      })
    if (place.across)
      columns.forEach((name, c) => {
        context.fillStyle = c === lit.column ? accent : muted
        context.save()
        context.translate(place.left + (c + 0.5) * place.cellWidth, place.top - 4)
        if (place.upright) context.rotate(-Math.PI / 2)
        context.textAlign = place.upright ? "left" : "center"
        context.fillText(name, 0, place.upright ? 0 : -5, 106)
        context.restore()
      })
    if (place.cellWidth >= 30 && place.cellHeight >= 14) this.write(context)
    for (const [cell, line] of [[picked, 2.5], [this.pointed, 1.5]]) if (cell) this.frame(context, cell, line,
      cell === picked ? accent : ink)
  }

  /** Write the numbers into the cells. */
  write(context) {
    const {values, scale} = this.options, place = this.place
    context.textAlign = "center"
    for (let r = 0; r < values.rows; r++)
      for (let c = 0; c < values.columns; c++) {
        const value = at(values, r, c)
        if (Number.isNaN(value)) continue
        context.fillStyle = inkOn(colourOf(value, scale))
        const text = Math.abs(value) < 0.005 ? "0" : value.toFixed(2).replace("-", "−")
        context.fillText(text, place.left + (c + 0.5) * place.cellWidth, place.top + (r + 0.5) * place.cellHeight)
      }
  }

  frame(context, cell, line, colour) {
    const {values} = this.options, place = this.place
    const [row, rows] = cell.row === null || cell.row === undefined ? [0, values.rows] : [cell.row, 1]
    const [column, columns] = cell.column === null || cell.column === undefined ? [0, values.columns] : [cell.column, 1]
    context.strokeStyle = colour
    context.lineWidth = line
    context.strokeRect(place.left + column * place.cellWidth, place.top + row * place.cellHeight,
      Math.max(2, columns * place.cellWidth), Math.max(2, rows * place.cellHeight))
  }

  cellAt(event) {
    const {values} = this.options, place = this.place, box = this.canvas.getBoundingClientRect()
    const column = Math.floor((event.clientX - box.left - place.left) / place.cellWidth)
    const row = Math.floor((event.clientY - box.top - place.top) / place.cellHeight)
    if (row >= values.rows || column >= values.columns || (row < 0 && column < 0)) return null
    return {row: row < 0 ? null : row, column: column < 0 ? null : column}
  }

  point(cell) {
    if (cell?.row === this.pointed?.row && cell?.column === this.pointed?.column && !cell === !this.pointed) return
    this.highlight(cell)
    this.dispatchEvent(new CustomEvent("point", {detail: cell}))
  }

  pick(cell) {
    if (cell && cell.row !== null && cell.column !== null) this.dispatchEvent(new CustomEvent("pick", {detail: cell}))
  }

  onKey(event) {
    const {values, picked} = this.options
    const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key]
    if (event.key === "Enter") this.pick(this.pointed ?? picked)
    if (!move) return
    event.preventDefault()
    const from = this.pointed ?? picked ?? {row: 0, column: -move[1]}
    const clamp = (value, end) => Math.min(end - 1, Math.max(0, value))
    this.point({row: clamp((from.row ?? 0) + move[0], values.rows),
      column: clamp((from.column ?? 0) + move[1], values.columns)})
  }

  /** Write the names and the number of the selected cell. */
  updateReadout() {
    const {values, rows, columns, words, picked} = this.options, cell = this.pointed ?? picked
    this.readout.replaceChildren()
    if (!cell) return void this.readout.append(element("span", {class: "hint"}, "Point at a cell to read it."))
    const name = (side, names, place) => place === null || place === undefined ? null
      : [words[side] ? `${words[side]} ` : "", element("bdi", {}, names[place] ?? String(place))]
    const parts = [name(0, rows, cell.row), name(1, columns, cell.column)].filter(Boolean)
    this.readout.append(...parts[0], ...(parts[1] ? [words[1] ? " " : ", ", ...parts[1]] : []))
    if (parts.length < 2) return
    const value = at(values, cell.row, cell.column)
    const colour = element("i", {class: "swatch"})
    colour.style.background = css(colourOf(value, this.options.scale))
    this.readout.append(": ", element("b", {"data-value": String(value)}, formatNumber(value, 4)), " ", colour)
  }
}

const FONT = "12px system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif"
customElements.define("seq-matrix", Matrix)
