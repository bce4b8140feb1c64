import Foundation

extension InputStream {
  fileprivate func take(_ count: Int) -> String {
    var buffer = [UInt8](repeating: 0, count: max(count, 1))
    let result = buffer.withUnsafeMutableBufferPointer { read($0.baseAddress!, maxLength: count) }
    return "\(result) '\(String(decoding: buffer[..<max(result, 0)], as: UTF8.self))'"
  }
}

extension OutputStream {
  fileprivate func put(_ text: String) -> Int {
    let bytes = [UInt8](text.utf8)
    return bytes.withUnsafeBufferPointer { buffer in
      guard let base = buffer.baseAddress else { return write([0], maxLength: 0) }
      return write(base, maxLength: buffer.count)
    }
  }
}

extension World {
  /// Foundation's streams end the process when they are asked for an error that there is not.
  fileprivate func error(of stream: Stream) -> String {
    guard stream.streamStatus == .error else { return "none" }
    return stream.streamError.map { describe($0).code } ?? "none, though the status is error"
  }
}

private func label(_ status: Stream.Status) -> String {
  switch status {
  case .notOpen: "notOpen"
  case .opening: "opening"
  case .open: "open"
  case .reading: "reading"
  case .writing: "writing"
  case .atEnd: "atEnd"
  case .closed: "closed"
  case .error: "error"
  }
}

extension Case {
  static let streams: [Case] = [
    Case(name: "input stream") { w in
      try w.make("a", "0123456789")
      guard let stream = w.inputStream(atPath: w.path("a")) else {
        throw CannotSetUp(description: "no stream")
      }
      w.step("status at first") { label(stream.streamStatus) }
      w.step("read before it is open") { stream.take(2) }
      w.step("status after that") { label(stream.streamStatus) }
      stream.open()
      w.step("status") { label(stream.streamStatus) }
      w.step("bytes available") { stream.hasBytesAvailable }
      w.step("read") { stream.take(4) }
      w.step("offset") { stream.property(forKey: .fileCurrentOffsetKey) as? NSNumber }
      w.step("read none") { stream.take(0) }
      w.step("read the rest") { stream.take(100) }
      w.step("status then") { label(stream.streamStatus) }
      w.step("bytes available then") { stream.hasBytesAvailable }
      w.step("read at the end") { stream.take(4) }
      w.step("status at the end") { label(stream.streamStatus) }
      w.step("bytes available at the end") { stream.hasBytesAvailable }
      w.step("seek") { stream.setProperty(NSNumber(value: 3), forKey: .fileCurrentOffsetKey) }
      w.step("status after the seek") { label(stream.streamStatus) }
      w.step("read after the seek") { stream.take(2) }
      w.step("error") { w.error(of: stream) }
      w.step("unknown property") { stream.property(forKey: Stream.PropertyKey(rawValue: "unknown")) == nil }
      w.step("buffer") {
        var buffer: UnsafeMutablePointer<UInt8>?
        var count = 0
        return stream.getBuffer(&buffer, length: &count)
      }
      stream.close()
      w.step("status when closed") { label(stream.streamStatus) }
      w.step("bytes available when closed") { stream.hasBytesAvailable }
      w.step("read when closed") { stream.take(2) }
      stream.close()
      w.step("status when closed twice") { label(stream.streamStatus) }
      stream.open()
      w.step("status when opened again") { label(stream.streamStatus) }
    },
    Case(name: "input streams that fail") { w in
      try w.makeDirectory("d")
      try w.make("empty")
      try w.makeLink("dangling", to: "missing")
      for name in ["missing", "d", "dangling", "empty", "no/x", "empty/x"] {
        guard let stream = w.inputStream(atPath: w.path(name)) else {
          w.note("\(name): is none", "")
          continue
        }
        stream.open()
        w.step("\(name): status") { label(stream.streamStatus) }
        w.step("\(name): error") { w.error(of: stream) }
        w.step("\(name): bytes available") { stream.hasBytesAvailable }
        w.step("\(name): read") { stream.take(3) }
        w.step("\(name): status after the read") { label(stream.streamStatus) }
        w.step("\(name): error after the read") { w.error(of: stream) }
        stream.close()
        w.step("\(name): status when closed") { label(stream.streamStatus) }
      }
      w.step("of the empty path") { w.inputStream(atPath: "") == nil }
      w.step("by URL") {
        try w.make("a", "abc")
        let stream = w.inputStream(at: w.url("a"))
        stream?.open()
        return stream?.take(10)
      }
      w.step("by URL, missing") { w.inputStream(at: w.url("missing")) == nil }
    },
    Case(name: "output stream") { w in
      try w.make("a", "0123456789")
      guard let stream = w.outputStream(atPath: w.path("a"), append: false) else {
        throw CannotSetUp(description: "no stream")
      }
      w.step("contents before it is open") { w.contents("a") }
      w.step("status at first") { label(stream.streamStatus) }
      w.step("write before it is open") { stream.put("x") }
      w.step("status after that") { label(stream.streamStatus) }
      stream.open()
      w.step("contents once it is open") { w.contents("a") }
      w.step("status") { label(stream.streamStatus) }
      w.step("space") { stream.hasSpaceAvailable }
      w.step("write") { stream.put("hello") }
      w.step("contents") { w.contents("a") }
      w.step("offset") { stream.property(forKey: .fileCurrentOffsetKey) as? NSNumber }
      w.step("write nothing") { stream.put("") }
      w.step("status after writing nothing") { label(stream.streamStatus) }
      w.step("seek") { stream.setProperty(NSNumber(value: 1), forKey: .fileCurrentOffsetKey) }
      w.step("write after the seek") { stream.put("E") }
      w.step("contents after the seek") { w.contents("a") }
      w.step("error") { w.error(of: stream) }
      w.step("data written to memory") { stream.property(forKey: .dataWrittenToMemoryStreamKey) == nil }
      stream.close()
      w.step("status when closed") { label(stream.streamStatus) }
      w.step("space when closed") { stream.hasSpaceAvailable }
      w.step("write when closed") { stream.put("x") }
      w.step("contents when closed") { w.contents("a") }
    },
    Case(name: "output streams that append, and others") { w in
      try w.make("a", "0123")
      try w.makeDirectory("d")
      try w.makeLink("toA", to: "a")
      try w.makeLink("dangling", to: "target")
      func write(_ path: String, _ append: Bool, _ text: String) -> String {
        guard let stream = w.outputStream(atPath: w.path(path), append: append) else { return "none" }
        stream.open()
        let opened = label(stream.streamStatus)
        let count = stream.put(text)
        let error = w.error(of: stream)
        let offset = w.text(stream.property(forKey: .fileCurrentOffsetKey) as? NSNumber)
        stream.close()
        return "\(opened), \(count) written, error \(error), offset \(offset), \(label(stream.streamStatus))"
      }
      for (path, append) in [
        ("a", true), ("new", false), ("new2", true), ("toA", true), ("toA", false), ("dangling", false),
        ("d", false), ("d", true), ("no/x", false),
        ("a/x", false),
      ] {
        w.step("\(path), \(append ? "appending" : "anew")") { write(path, append, "xyz") }
      }
      w.step("what is there") { try w.tree() }
      w.step("permissions of a new file") { try w.permissions("new") }
      w.step("two that append") {
        guard let one = w.outputStream(atPath: w.path("a"), append: true),
          let two = w.outputStream(atPath: w.path("a"), append: true)
        else {
          return "none"
        }
        one.open()
        two.open()
        _ = one.put("1")
        _ = two.put("2")
        _ = one.put("3")
        one.close()
        two.close()
        return w.contents("a")
      }
      w.step("by URL") {
        let stream = w.outputStream(at: w.url("byURL"), append: false)
        stream?.open()
        _ = stream?.put("url")
        stream?.close()
        return w.contents("byURL")
      }
      w.step("removed behind it") {
        guard let stream = w.outputStream(atPath: w.path("new"), append: false) else { return "none" }
        stream.open()
        try w.manager.removeItem(atPath: w.path("new"))
        let count = stream.put("x")
        stream.close()
        return "\(count) \(w.text(w.manager.fileExists(atPath: w.path("new"))))"
      }
    },
  ]
}
