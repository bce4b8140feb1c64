/// The definitions of ``WellKnownService``: the files of Fixtures/ServiceDefinitions as source text, so that the package works without
/// resources. A test compares them byte for byte.
extension WellKnownService {
  var definitionText: String {
    switch self {
    case .transferFile:
      #"""
      {
        "service-id": "com.good.gdservice.transfer-file",
        "version": "1.0.0.0",
        "title": "Transfer File",
        "description": "Takes one file from another app. The receiver decides what becomes of it.",
        "methods": {
          "transferFile": {
            "description": "Hands one file over.",
            "params": {
              "type": "null"
            },
            "attachments": {
              "items": {
                "title": "The file"
              },
              "minItems": 1,
              "maxItems": 1
            },
            "result-value": {
              "type": "null",
              "description": "The file was taken."
            }
          }
        }
      }

      """#
    case .saveFiles:
      #"""
      {
        "service-id": "com.good.gdservice.save-files",
        "version": "1.0.0.0",
        "title": "Save Files",
        "description": "Takes several files from another app.",
        "methods": {
          "saveFiles": {
            "description": "Hands one or more files over.",
            "attachments": {
              "items": {
                "title": "A file"
              },
              "minItems": 1
            },
            "result-value": {
              "type": "null",
              "description": "All files were taken."
            }
          }
        }
      }

      """#
    case .editFile:
      #"""
      {
        "service-id": "com.good.gdservice.edit-file",
        "version": "1.0.0.0",
        "title": "Edit File",
        "description": "Opens a file in another app for editing. What was changed comes back through com.good.gdservice.save-edited-file, which the asking app offers.",
        "methods": {
          "editFile": {
            "description": "Opens one file for editing.",
            "params": {
              "type": "object",
              "properties": {
                "identificationData": {
                  "type": "UInt8Array",
                  "description": "What the sender of the file needs to know it again. Opaque; given back unchanged."
                }
              }
            },
            "attachments": {
              "items": {
                "title": "The file"
              },
              "minItems": 1,
              "maxItems": 1
            },
            "result-value": {
              "type": "null",
              "description": "The file is open for editing."
            },
            "errors": [
              {
                "code": 1,
                "title": "Invalid request",
                "description": "The request does not follow this definition."
              },
              {
                "code": 2,
                "title": "Unsupported file type",
                "description": "The app does not edit files of this type."
              },
              {
                "code": 3,
                "title": "Corrupt file",
                "description": "The file cannot be read."
              }
            ]
          }
        }
      }

      """#
    case .saveEditedFile:
      #"""
      {
        "service-id": "com.good.gdservice.save-edited-file",
        "version": "1.0.0.0",
        "title": "Save Edited File",
        "description": "Takes back a file that was sent with com.good.gdservice.edit-file.",
        "methods": {
          "saveEdit": {
            "description": "Hands over the file as it is now. Editing may go on.",
            "params": {
              "type": "object",
              "properties": {
                "identificationData": {
                  "type": "UInt8Array",
                  "description": "What the sender of the file needs to know it again. Opaque; given back unchanged."
                }
              }
            },
            "attachments": {
              "items": {
                "title": "The file"
              },
              "minItems": 1,
              "maxItems": 1
            }
          },
          "releaseEdit": {
            "description": "Says that editing has ended.",
            "params": {
              "type": "object",
              "properties": {
                "identificationData": {
                  "type": "UInt8Array",
                  "description": "What the sender of the file needs to know it again. Opaque; given back unchanged."
                }
              }
            }
          }
        }
      }

      """#
    case .sendEmail:
      #"""
      {
        "service-id": "com.good.gfeservice.send-email",
        "version": "1.0.0.0",
        "title": "Send Email",
        "description": "Opens a new message that the user can change and send.",
        "methods": {
          "sendEmail": {
            "description": "Prepares a message.",
            "params": {
              "type": "object",
              "properties": {
                "to": {
                  "type": "array",
                  "items": {
                    "type": "string"
                  },
                  "description": "Addresses of the recipients."
                },
                "cc": {
                  "type": "array",
                  "items": {
                    "type": "string"
                  },
                  "description": "Addresses that get a copy."
                },
                "bcc": {
                  "type": "array",
                  "items": {
                    "type": "string"
                  },
                  "description": "Addresses that get a copy and are not shown."
                },
                "subject": {
                  "type": "string"
                },
                "body": {
                  "type": "string"
                }
              }
            },
            "attachments": {
              "items": {
                "title": "A file to attach to the message"
              }
            }
          }
        }
      }

      """#
    case .openURL:
      #"""
      {
        "service-id": "com.good.gdservice.open-url.http",
        "version": "1.0.0.0",
        "title": "Open URL",
        "description": "Opens a web page in a browser that the organisation trusts.",
        "methods": {
          "open": {
            "description": "Opens one page.",
            "params": {
              "type": "object",
              "required": true,
              "properties": {
                "url": {
                  "type": "string",
                  "description": "The address, http or https.",
                  "required": true
                },
                "fullscreen": {
                  "type": "boolean",
                  "description": "Without the controls of the browser."
                }
              }
            }
          }
        }
      }

      """#
    case .createCalendarItem:
      #"""
      {
        "service-id": "com.good.gdservice.create-calendar-item",
        "version": "1.0.0.0",
        "title": "Create Calendar Item",
        "description": "Opens a new calendar item that the user can change and save.",
        "methods": {
          "createCalendarItem": {
            "description": "Prepares an item.",
            "params": {
              "type": "object",
              "properties": {
                "title": {
                  "type": "string"
                },
                "description": {
                  "type": "string"
                },
                "location": {
                  "type": "string"
                },
                "startTime": {
                  "type": "string",
                  "description": "ISO 8601 with an offset from UTC."
                },
                "endTime": {
                  "type": "string",
                  "description": "ISO 8601 with an offset from UTC."
                },
                "allDay": {
                  "type": "boolean"
                }
              }
            }
          }
        }
      }

      """#
    case .openCatalog:
      #"""
      {
        "service-id": "com.blackberry.gdservice.open-catalog",
        "version": "1.0.0.0",
        "title": "Open Catalog",
        "description": "Opens an entry of the catalog of apps.",
        "methods": {
          "open": {
            "description": "Opens one entry.",
            "params": {
              "type": "object",
              "required": true,
              "properties": {
                "url": {
                  "type": "string",
                  "description": "The address of the entry, uemappstore.",
                  "required": true
                }
              }
            }
          }
        }
      }

      """#
    case .openShareURL:
      #"""
      {
        "service-id": "com.good.gsservice.open-share-url",
        "version": "1.0.0.0",
        "title": "Open Share URL",
        "description": "Opens a place in a file share.",
        "methods": {
          "open": {
            "description": "Opens one place.",
            "params": {
              "type": "object",
              "required": true,
              "properties": {
                "url": {
                  "type": "string",
                  "description": "The address of the place.",
                  "required": true
                }
              }
            }
          }
        }
      }

      """#
    case .requestLinks:
      #"""
      {
        "service-id": "com.good.gdservice.request-links",
        "version": "1.0.0.0",
        "title": "Request Links",
        "description": "Asks another app for links. What the request and its reply hold is public nowhere, so that this definition takes any params, files and reply.",
        "methods": {
          "requestLinks": {
            "description": "Asks for links.",
            "params": {
              "description": "Not known: anything, or nothing."
            },
            "attachments": {
              "items": {
                "title": "A file"
              }
            },
            "result-value": {
              "description": "Not known: anything, or nothing."
            },
            "result-attachments": {
              "items": {
                "title": "A file"
              }
            }
          }
        }
      }

      """#
    case .frontRequest:
      #"""
      {
        "service-id": "com.good.gd.icc",
        "version": "1.0.0.0",
        "title": "Front Request",
        "description": "Asks the app that is in front to bring the asking app to front. The app may do so, or pass it over.",
        "methods": {
          "FRONT_REQ": {
            "description": "Asks to be brought to front."
          }
        }
      }

      """#
    case .greetings:
      #"""
      {
        "service-id": "com.good.gd.example.services.greetings",
        "version": "1.0.0",
        "title": "Greetings",
        "description": "An example. The number in the name of a method is the foreground preference of the reply.",
        "methods": {
          "greetMe|0": {
            "description": "Answers with a greeting.",
            "result-value": {
              "type": "string",
              "description": "The greeting.",
              "required": true
            }
          },
          "greetMe|1": {
            "description": "Answers with a greeting.",
            "result-value": {
              "type": "string",
              "description": "The greeting.",
              "required": true
            }
          },
          "greetMe|2": {
            "description": "Answers with a greeting.",
            "result-value": {
              "type": "string",
              "description": "The greeting.",
              "required": true
            }
          },
          "sendFiles": {
            "description": "Takes files.",
            "attachments": {
              "items": {
                "title": "A file"
              },
              "minItems": 1
            }
          }
        }
      }

      """#
    }
  }
}
