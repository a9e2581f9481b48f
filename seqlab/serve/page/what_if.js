// What if: ablate heads, replace a word, force a prefix, and compare the answers.
import * as api from "./api.js"
import {bars} from "./chart.js"
import {button} from "./control.js"
import {element, bdiText, formatNumber} from "./element.js"
import {Pane, section} from "./pane.js"

const ABLATABLE = {heads: "heads", h: "states", c: "cells", output: "whole block", inner: "feed-forward",
  embedding: "embeddings"}

export class WhatIfPane extends Pane {
  static unavailable(model) {
    return model.views.includes("what-if") ? "" : "Nothing in this model can be ablated or replaced."
  }

  viewToSave() {
    return this.options ? {view: "what-if", options: this.options} : null
  }

  async render(signal) {
    const {task, name} = this.page.model
    const canForce = ["translate", "caption"].includes(task), canSample = canForce || task === "lm"
    this.controls([
      ...(canForce ? [{key: "prefix", kind: "text", label: "Force the beginning", value: "",
        hint: "The answer is forced to begin with this text."}] : []),
      ...(canSample ? [{key: "temperature", kind: "slider", label: "Temperature", min: 0, max: 2, step: 0.1, value: 0,
        format: value => value || "off",
        hint: "0 decodes as in the recipe; above 0, the new answer is sampled."}] : []),
    ])
    const ablate = this.value("ablate").split(" ").filter(Boolean), options = {}
    if (ablate.length) options.ablate = ablate
    if (this.value("replace")) options.replace = this.value("replace")
    if (canForce && this.value("prefix")) options.prefix = this.value("prefix")
    if (canSample && this.number("temperature")) options.temperature = this.number("temperature")
    this.options = Object.keys(options).length ? options : null
    const [lens, {outputs: [now]}, data] = await Promise.all([this.fetchView("lens", {}, signal),
      api.predict({model: name, inputs: [this.page.payload]}, signal),
      this.options && this.fetchView("what-if", this.options, signal)])
    this.showResult(this.outcome(data, now), element("div", {class: "pair"}, this.words(), this.parts(lens, ablate)))
  }

  outcome(data, now) {
    if (!data) return section("Before and after",
      "Change something below: ablate a head, or edit a word. The current answer:",
      element("p", {class: "answer"}, bdiText(now.output || "(nothing)")))
    const line = (name, text, kind) => element("p", {class: `answer ${kind}`}, element("small", {}, name), " ",
      bdiText(text || "(nothing)"))
    const rows = data.log_probability_after ? data.answered.map((token, k) => [token,
      data.log_probability_after[k] - data.log_probability_before[k]]) : []
    const total = rows.reduce((sum, [, change]) => sum + change, 0)
    return section("Before and after",
      data.before === data.after ? "The answer stays the same." : "The answer changes.",
      line("before", data.before, "before"), line("after", data.after, "after"),
      rows.length ? element("div", {}, element("p", {class: "hint"},
        `The log-probability of the old answer changes by ${formatNumber(total, 4)}; by its parts:`),
        bars(rows, {label: "change in the log-probability of each part of the old answer"})) : null,
      button("Undo all", "Remove all changes.", () => this.set({ablate: "", replace: "", prefix: "",
        temperature: ""}), {"data-key": "undo"}))
  }

  /** The words of the input, each in a box to edit. */
  words() {
    if (typeof this.page.payload !== "string") return null
    const words = String(this.page.input).split(/\s+/).filter(Boolean)
    const [, place, word] = this.value("replace").match(/^(\d+)=([^]*)$/) ?? []
    return section("Edit a word", "Type another word into a box and press Enter.",
      element("div", {class: "tokens"}, ...words.map((each, k) => {
      const changed = Number(place) === k + 1
      const box = element("input", {type: "text", dir: "auto", spellcheck: false,
        class: changed ? "token changed" : "token", value: changed ? word : each, "aria-label": `word ${k + 1}`,
        "data-key": `word-${k}`,
        onchange: event => this.set({replace: event.target.value === each ? "" : `${k + 1}=${event.target.value}`})})
      box.size = Math.max(2, box.value.length)
      return box
    })))
  }

  /** Buttons to ablate single heads and whole layers. */
  parts(lens, ablate) {
    const toggle = name => this.set({ablate: (ablate.includes(name) ? ablate.filter(each =>
      each !== name) : [...ablate, name]).join(" ")})
    const key = (name, label, hint) => button(label, hint, () => toggle(name),
      {"aria-pressed": String(ablate.includes(name)), "data-key": `ablate-${name}`, "data-ablate": name})
    const rows = new Map()
    for (const {name, shape} of lens.stages) {
      const [, layer, leaf] = name.match(/^(.*)\.(\w+)$/) ?? []
      if (!(leaf in ABLATABLE)) continue
      if (!rows.has(layer)) rows.set(layer, [])
      if (leaf === "heads")
        rows.get(layer).push("head", ...Array.from({length: shape[0]},
          (_, h) => key(`${name}:${h}`, String(h + 1), `Set head ${h + 1} of ${layer} to zero.`)))
      rows.get(layer).push(key(name, leaf === "heads" ? "all" : ABLATABLE[leaf],
        `Set the ${ABLATABLE[leaf]} of ${layer} to zero.`))
    }
    return section("Ablate a part", "The pressed parts are set to zero, and the answer is computed again.",
      element("table", {class: "parts"}, ...[...rows].map(([layer, keys]) => element("tr", {},
        element("th", {scope: "row"}, element("code", {}, layer)), element("td", {class: "row"}, ...keys)))))
  }
}
