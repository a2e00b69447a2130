// Search runs in a worker, which browsers refuse to a page that was opened from disk. There a hidden frame takes its
// place: it runs the same script, and messages go back and forth as events.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.ready = new Promise((loaded, failed) => {
        const script = inside.document.createElement("script")
        Object.assign(script, { src: address, onload: loaded, onerror: failed })
        inside.document.body.append(script)
      })
    }
    postMessage(data) {
      this.ready.then(() => {
        const inside = this.frame.contentWindow
        inside.dispatchEvent(new inside.MessageEvent("message", { data }))
      })
    }
    terminate() {
      this.frame.remove()
    }
  }
}
