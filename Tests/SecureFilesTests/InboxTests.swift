import Foundation
import SecureFiles
import Testing

struct SecureContainerInboxTests {
  @Test func anAppListsAndRemovesWhatArrived() async throws {
    let (sender, receiver) = (try FilesOfContainer(), try FilesOfContainer())
    try sender.files.write(Data([1, 2, 3]), toPath: "/letter")
    for _ in 0..<2 {
      _ = try await sender.container.send(["/letter"], to: receiver.container, sender: "com.example.sender")
    }
    let messages = try receiver.container.inboxMessages()
    #expect(messages.map(\.sender) == ["com.example.sender", "com.example.sender"])
    #expect(messages.map(\.fileCount) == [1, 1])
    #expect(messages.map(\.byteCount) == [3, 3])
    #expect(messages[0].date < messages[1].date)
    #expect(abs(messages[0].date.timeIntervalSinceNow) < 3600)
    try receiver.container.removeInboxMessages([messages[0]])
    #expect(try receiver.container.inboxMessages() == [messages[1]])
    #expect(receiver.files.fileExists(atPath: messages[1].directory + "/letter"))
  }
}
