import Foundation
import Testing

/// Traps in the sources: no value of the system, of a file, of a C string or of a peer may reach one.
struct TrapTests {
  /// Each trap says why it cannot be reached, in its message.
  @Test func everyTrapHasAReason() throws {
    var count = 0
    for (file, text) in try Self.texts() where !file.hasSuffix(".pb.swift") {
      for match in text.matches(of: #/\b(precondition|preconditionFailure|fatalError)\(/#) {
        count += 1
        let arguments = Self.arguments(of: text[match.range.upperBound...])
        #expect(arguments.contains("\""), "\(file): \(match.0)\(arguments)")
      }
      // The pattern below only searches for unwrapped values; this file unwraps none.
      for match in text.matches(of: #/(?m)^.*\b(try!|as! ).*$/#) where !match.0.contains("///") {
        Issue.record("\(file): \(match.0): a value of this kind is unwrapped with an error")
      }
    }
    #expect(count > 50)
  }

  /// What a call of the system returns is looked at before it is used.
  @Test func noCallOfTheSystemIsUnwrapped() throws {
    let calls =
      #/\b(getenv|fopen|fdopen|opendir|fdopendir|readdir|realpath|getpwuid|getpwnam|strerror|inet_ntop|dlopen|dlsym|mmap|ttyname|readlink|getcwd)\([^()]*(\([^()]*\)[^()]*)*\)!/#
    for (file, text) in try Self.texts() {
      for match in text.matches(of: calls) { Issue.record("\(file): \(match.0)") }
    }
  }

  /// Sizes that a file, a container or another app states are added with a limit: two of them may be more than there are numbers. The
  /// store has sums of its own, whose parts it has checked.
  @Test func noStatedSizesAreAdded() throws {
    // Lengths of what is in memory.
    let measured = [
      "ServiceValue+Limits.swift", "AppDirectory.swift", "ProviderWatch.swift",
      "BrokerRecords+Administration.swift",
      "AppKinetics/OpenRequests.swift",
      "DescriptorReceiver.swift", "PushChannels/ChannelBook.swift", "PushRelay/Hub.swift",
      "PushRelay/Relay.swift",
    ]
    // Constants.
    let constants =
      #/\b(SecretKey|SecretStreamCipher|KeyFingerprint|KeyPair|Identifier|BulkSlots)\.\w*[bB]yteCount/#
    let sum =
      #/(\+=?|\*) [^"]*[.](byteCount|storedByteCount|size|bytesDone|delivered|missingCount)\b|[.](byteCount|size|bytesDone)\)* (\+|\*) /#
    var fileCount = 0
    for (file, text) in try Self.texts()
    where !file.hasSuffix(".pb.swift") && !measured.contains(where: file.hasSuffix)
      && !["ContainerStore/", "EncryptedFile/", "SodiumPrimitives/"].contains(where: file.hasPrefix)
    {
      fileCount += 1
      for line in text.split(separator: "\n") where !line.contains(constants) && line.contains(sum) {
        if line.contains("\"") { continue }
        Issue.record("\(file): \(line): add it with addSaturating or saturatingSum")
      }
    }
    #expect(fileCount > 200)
  }

  /// To read a value of another app takes as long as it likes, within the limits, and nothing waits for it but its own messages.
  @Test func valuesOfOtherAppsAreReadInOnePlace() throws {
    var count = 0
    for (file, text) in try Self.texts() where file.hasPrefix("AppKinetics/") {
      for match in text.matches(of: #/ServiceValue\((\w+\.)?(params|details|value|wire)\b/#) {
        count += 1
        // The app's own outbox, by a thread that waits for the disk.
        guard
          !["Peer/ReadValues.swift", "Interface/AppServices+Outbox.swift"].contains(where: file.hasSuffix)
        else { continue }
        Issue.record("\(file): \(match.0)")
      }
    }
    #expect(count >= 4)
  }

  private static func texts() throws -> [(file: String, text: String)] {
    try SourceTree.targets().flatMap { try SourceTree.files(of: $0, extensions: ["swift"]) }
      .map { ($0, try SourceTree.text(of: $0)) }
  }

  /// The text up to the parenthesis that ends it.
  private static func arguments(of text: Substring) -> Substring {
    var depth = 1
    for index in text.indices {
      if text[index] == "(" { depth += 1 }
      if text[index] == ")" { depth -= 1 }
      if depth == 0 { return text[..<index] }
    }
    return text
  }
}
