#if os(Linux)
  import Glibc
  import Locks

  /// Looks for bytes in the whole memory of this process that can be written to: what a core dump would have.
  ///
  /// The bytes themselves, and what is read, are in memory of their own that is left out.
  package final class MemorySearch {
    /// False in a process with a sanitizer, which has terabytes of its own, and copies of what passes it.
    package static let isPossible = dlsym(nil, "__tsan_init") == nil && dlsym(nil, "__asan_init") == nil

    private static let byteCountMax = 1 << 20
    /// One search at a time, so that none finds what another one has read.
    private static let searching = Guarded(0)
    private let own: UnsafeMutableRawBufferPointer
    private var needle: UnsafeMutableRawBufferPointer
    private var buffer: UnsafeMutableRawBufferPointer {
      UnsafeMutableRawBufferPointer(rebasing: own[4096...])
    }

    /// For `count` bytes, which `fill` writes.
    package init(count: Int, _ fill: (UnsafeMutableRawBufferPointer) throws -> Void) rethrows {
      let byteCount = 4096 + Self.byteCountMax
      let memory = mmap(nil, byteCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)!
      own = UnsafeMutableRawBufferPointer(start: memory, count: byteCount)
      needle = UnsafeMutableRawBufferPointer(rebasing: own[..<count])
      try fill(needle)
    }

    /// For random bytes, which nothing else has.
    package convenience init(randomCount count: Int) {
      self.init(count: count) { needle in
        for i in needle.indices { needle[i] = .random(in: 0...255) }
      }
    }

    deinit { munmap(own.baseAddress!, own.count) }

    package var bytes: UnsafeRawBufferPointer { UnsafeRawBufferPointer(needle) }

    /// Where they are, each with the name of the mapping.
    package func places() -> [String] { Self.places(of: [self])[0] }

    /// The same of several, with one look at the memory.
    package static func places(of searches: [MemorySearch]) -> [[String]] {
      searching.withLock { _ in
        let buffer = searches[0].buffer
        defer { _ = memset(buffer.baseAddress!, 0, buffer.count) }
        return find(searches, buffer)
      }
    }

    private static func find(_ searches: [MemorySearch], _ buffer: UnsafeMutableRawBufferPointer)
      -> [[String]]
    {
      let memory = open("/proc/self/mem", O_RDONLY)
      precondition(memory >= 0, "a process may read its own memory")
      defer { close(memory) }
      let own = searches.map(\.ownRange)
      let overlap = UInt(searches.map(\.needle.count).max()!)
      var places = searches.map { _ in [String]() }
      for (mapping, name) in mappings() {
        for range in parts(of: mapping, without: own) {
          var position = range.lowerBound
          while position < range.upperBound {
            let begin = position
            let count = min(byteCountMax, Int(range.upperBound - begin))
            position += UInt(count)
            // Parts overlap by the length of what is looked for.
            if position < range.upperBound { position -= overlap }
            read(begin, count, memory, buffer, searches, name, &places)
          }
        }
      }
      return places
    }

    private static func parts(of range: Range<UInt>, without own: [Range<UInt>]) -> [Range<UInt>] {
      own.reduce([range]) { parts, own in
        parts.flatMap { part -> [Range<UInt>] in
          guard part.overlaps(own) else { return [part] }
          return [
            part.lowerBound..<max(part.lowerBound, own.lowerBound),
            min(part.upperBound, own.upperBound)..<part.upperBound,
          ].filter { !$0.isEmpty }
        }
      }
    }

    private static func read(
      _ begin: UInt, _ count: Int, _ memory: Int32, _ buffer: UnsafeMutableRawBufferPointer,
      _ searches: [MemorySearch], _ name: String, _ places: inout [[String]]
    ) {
      let read = pread(memory, buffer.baseAddress!, count, off_t(bitPattern: begin))
      guard read > 0 else { return }
      let base = UnsafeRawPointer(buffer.baseAddress!)
      for (number, search) in searches.enumerated() where read >= search.needle.count {
        let needle = search.needle
        var from = base
        let end = base + (read - needle.count + 1)
        while from < end, let found = memchr(from, Int32(needle[0]), end - from) {
          if memcmp(found, needle.baseAddress!, needle.count) == 0 {
            let address = begin + UInt(UnsafeRawPointer(found) - base)
            places[number].append(String(address, radix: 16) + " " + name)
          }
          from = UnsafeRawPointer(found) + 1
        }
      }
    }

    private var ownRange: Range<UInt> {
      let begin = UInt(bitPattern: own.baseAddress!)
      return begin..<begin + UInt(own.count)
    }

    private static func mappings() -> [(Range<UInt>, String)] {
      let file = fopen("/proc/self/maps", "r")!
      defer { fclose(file) }
      var mappings: [(Range<UInt>, String)] = []
      var line = [CChar](repeating: 0, count: 4096)
      while fgets(&line, Int32(line.count), file) != nil {
        let fields = String(decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
          .split(whereSeparator: { $0 == " " || $0 == "\n" })
        let ends = fields[0].split(separator: "-").map { UInt($0, radix: 16)! }
        // Guarded memory that was made inaccessible cannot be read by anybody.
        guard fields[1].hasPrefix("rw") else { continue }
        mappings.append((ends[0]..<ends[1], fields.count > 5 ? String(fields[5]) : "memory"))
      }
      return mappings
    }
  }
#endif
