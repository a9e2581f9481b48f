// The server: one function for each route. Errors are thrown as `ServerError` with a message and a hint.

export class ServerError extends Error {
  constructor(message, hint, status) {
    super(message)
    this.hint = hint
    this.status = status
  }
}

const MAX_CACHED = 40 // answers
const cache = new Map()

export const models = () => json("/v1/models")
export const runs = (model, after, signal) => json(`/v1/runs/${encodeURIComponent(model)}?after=${after}`, null, signal)
export const predict = (body, signal) => cached("/v1/predict", body, signal)
export const next = (body, signal) => cached("/v1/next", body, signal)

/** The numbers and pictures of a view. */
export const explain = (view, body, signal) => cached(`/v1/explain/${view}`, body, signal)

/** A view as a file: html, svg, png or trace. */
export async function file(view, body, form, signal) {
  const answer = await fetchAnswer(`/v1/explain/${view}?form=${form}`, body, signal)
  return form === "trace" ? answer.arrayBuffer() : answer.blob()
}

/** Send a request once and cache its answer as long as the page is open. An aborted caller stops waiting; when no
 *  caller waits any more, the request is cancelled. */
async function cached(path, body, signal) {
  signal?.throwIfAborted()
  const key = `${path} ${JSON.stringify(body)}`
  const request = cache.get(key) ?? startRequest(path, body, key)
  request.waiters++
  return new Promise((resolve, reject) => {
    signal?.addEventListener("abort", () => {
      reject(signal.reason)
      if (--request.waiters === 0 && !request.answered) request.cancel()
    })
    request.answer.then(resolve, reject)
  })
}

function startRequest(path, body, key) {
  const abort = new AbortController(), request = {waiters: 0, answered: false, answer: json(path, body, abort.signal)}
  const remove = () => { if (cache.get(key) === request) cache.delete(key) }
  request.cancel = () => { remove(); abort.abort() }
  request.answer.then(() => { request.answered = true }, remove)
  cache.set(key, request)
  if (cache.size > MAX_CACHED) cache.delete(cache.keys().next().value)
  return request
}

async function json(path, body, signal) {
  return (await fetchAnswer(path, body, signal)).json()
}

async function fetchAnswer(path, body, signal) {
  const headers = {}
  const token = sessionStorage.getItem("token")
  if (token) headers.Authorization = `Bearer ${token}`
  if (body) headers["Content-Type"] = "application/json"
  let answer
  try {
    answer = await fetch(path, {method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal})
  } catch (error) {
    if (error.name === "AbortError") throw error
    throw new ServerError("the server does not answer", "check that `seqlab serve` is running.", 0)
  }
  if (answer.ok) return answer
  const failure = await answer.json().catch(() => ({}))
  throw new ServerError(failure.error ?? `the server answered ${answer.status}`, failure.hint ?? "", answer.status)
}
