import Foundation
import Testing
import UnixSockets

struct SocketErrorTests {
  static let errors: [SocketError] =
    [
      .callFailed(operation: "bind", path: "/run/x", errno: EACCES),
      .callFailed(operation: "accept", path: nil, errno: EMFILE),
      .callFailed(operation: "bind", path: "/run/x", errno: EIO),
      .addressInUse(path: "/run/x"), .nobodyAnswers(path: "/run/x"),
      .pathTooLong(path: "/run/x", byteCountMax: 107), .notASocket(path: "/run/x"), .notASocket(path: nil),
      .closed, .timedOut(operation: "read"), .messageTruncated, .tooManyDescriptors(atLeast: 1, countMax: 0),
    ] + SocketDirectory.Fault.allCases.map { .unsafeDirectory(path: "/run", fault: $0) }

  @Test(arguments: errors)
  func saysWhatFailedAndWhatToDo(error: SocketError) {
    for text in [error.what, error.remedy] {
      #expect(text.count > 10)
      #expect(!text.hasSuffix("."))
      #expect(text.first?.isUppercase == false)
    }
    #expect(error.what != error.remedy)
    #expect(error.description == error.what + "; " + error.remedy)
  }

  @Test func differentErrorsSayDifferentThings() {
    #expect(Set(Self.errors.map(\.what)).count == Self.errors.count)
  }

  @Test func failedCallNamesCallPathAndReason() {
    let text = SocketError.callFailed(operation: "bind", path: "/run/x", errno: EACCES).description
    #expect(text.contains("bind of /run/x failed"))
    #expect(text.contains("errno \(EACCES)"))
    #expect(text.contains("permissions"))
  }
}
